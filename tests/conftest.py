"""Tests run on the interpreter lane, on every machine, unless BITPROOF_LANE asks for another.

The lane is fixed here, before anything imports triton.
"""

import os

from harness import lanes

lanes.choose(os.environ.get("BITPROOF_LANE", "interpreter"))
