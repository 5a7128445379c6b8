"""Tests run on the interpreter lane wherever there is no GPU; the lane is fixed before triton loads."""

from harness import lanes

lanes.choose()
