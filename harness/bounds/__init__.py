"""How far an output may be from the oracle, and why: the names that authors use."""

from bitproof.harness.bounds.elements import (
    AllOf,
    Answer,
    Array,
    Bound,
    ExactBits,
    ForwardError,
    Judgement,
    Ulps,
    all_of,
    exact_bits,
    first_failing,
    forward_error,
    is_float,
    ulps,
)

__all__ = [
    "AllOf",
    "Answer",
    "Array",
    "Bound",
    "ExactBits",
    "ForwardError",
    "Judgement",
    "Ulps",
    "all_of",
    "exact_bits",
    "first_failing",
    "forward_error",
    "is_float",
    "ulps",
]
