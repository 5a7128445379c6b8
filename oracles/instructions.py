"""What tensor cores' instructions add at once, in which order and in how many bits: data, and no arithmetic.

Two implementations read this table, as two read `formats`: `tensor_cores` judges, a lane computes. What one
instruction does with its numbers is said in `tensor_cores`. Sources: "MMA-Sim", arXiv 2511.10909; "FTTN",
arXiv 2403.00232. docs/tensor-cores.md says what was confirmed on which card.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """How a product is summed by one kind of instruction.

    terms       products in one step
    kept        bits below the largest exponent at which the terms of a step are cut
    width       bits of a step's result, at most fp32's 24
    ignored     low bits of an fp32 operand that the hardware does not read
    depth       products of one instruction, a multiple of `terms`; 0 stands for `terms`
    interleaved over how many instructions neighbouring products are dealt: a thread that holds more of a row
                than one instruction takes gives them to several, see `tensor_cores.order_products`
    promoted    every how many products a partial sum that began at zero is added to the accumulator in fp32,
                to nearest; 0 where every step goes on from the accumulator
    """

    terms: int
    kept: int
    width: int = 24
    ignored: int = 0
    depth: int = 0
    interleaved: int = 1
    promoted: int = 0

    @property
    def span(self) -> int:
        """Products of one instruction."""
        return self.depth or self.terms


def _family(*, step: int, kept: int, whole: int) -> dict[str, Instruction]:
    """Of one unit: `step` and `whole` are the bytes of a row that a step and an instruction take."""
    return {
        "bf16": Instruction(terms=step // 2, kept=kept, depth=whole // 2),
        "fp16": Instruction(terms=step // 2, kept=kept, depth=whole // 2),
        "tf32": Instruction(terms=step // 4, kept=kept, depth=whole // 4, ignored=13),
    }


_HOPPER = _family(step=32, kept=25, whole=32)
_AMPERE = _family(step=16, kept=24, whole=32)
_FP8 = Instruction(terms=32, kept=13, width=14, depth=32)
_ADA_FP8 = Instruction(terms=16, kept=13, width=14, depth=32)
_BLACKWELL_FP8 = Instruction(terms=32, kept=25, depth=32)

INSTRUCTIONS: Mapping[str, Mapping[tuple[str, str], Instruction]] = MappingProxyType(
    {
        "sm_80": {(kind, "mma"): one for kind, one in _AMPERE.items()},
        "sm_89": {
            **{(kind, "mma"): one for kind, one in _AMPERE.items()},
            **{(kind, "mma"): _ADA_FP8 for kind in ("e4m3", "e5m2")},
        },
        "sm_90": {
            **{(kind, unit): one for kind, one in _HOPPER.items() for unit in ("mma", "wgmma")},
            **{(kind, "wgmma"): _FP8 for kind in ("e4m3", "e5m2")},
        },
        "sm_100": {
            **{(kind, unit): one for kind, one in _HOPPER.items() for unit in ("mma", "tcgen05")},
            **{(kind, "tcgen05"): _BLACKWELL_FP8 for kind in ("e4m3", "e5m2")},
        },
    }
)
"""By target, then by operand type and unit: "wgmma" on Hopper's tiles of 64 rows, "tcgen05" on Blackwell's,
"mma" of one warp. An fp8 product that no entry has is one of operands that were widened to fp16."""

CONFIRMED = frozenset({"sm_90"})
"""The targets whose entries were compared with a card, bit for bit."""
