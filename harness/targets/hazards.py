"""What other targets' code may do to a number: the names that specs accept and `harness.lowering` finds.

`harness.lowering.rules.table` explains each and says how it is found.
"""

from __future__ import annotations

HAZARDS = (
    "approximation",
    "changed sums",
    "contraction",
    "float atomics",
    "flushed subnormals",
    "lost specials",
    "not analysed",
    "overflow policy",
    "reduced products",
    "rounding twice",
    "ties away",
    "undefined register",
    "uninitialised store",
    "wrong conversion",
)

# Those that only a conversion of floats shows, and that are counted on the inputs that decide.
CONVERTING = (
    "lost specials",
    "overflow policy",
    "rounding twice",
    "ties away",
    "wrong conversion",
)
