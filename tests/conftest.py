"""Tests run on the interpreter lane, on every machine, unless BITPROOF_LANE asks for another.

The lane is fixed here, before anything imports triton. Like a property run, tests keep torch to one
thread (workers fill the cores) and give no example a deadline (a first call compiles or imports).
"""

import os

import torch
from hypothesis import settings

from bitproof.harness import lanes

lanes.choose(os.environ.get("BITPROOF_LANE", "interpreter"))
torch.set_num_threads(1)
settings.register_profile("bitproof-tests", deadline=None)
settings.load_profile("bitproof-tests")
