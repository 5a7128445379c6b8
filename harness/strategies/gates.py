"""Log-decays and the parameters of their gates: saturated, next to the bound, near zero, and so strong that a
product of e^G and e^-G overflows.

A gate is "log" (the log-decay g <= 0 itself, fp32), "plain" (g = -e^A_log * softplus(x)) or "bounded"
(g = bound * sigmoid(e^A_log * x)), where x is a raw value plus dt_bias, as in flash-linear-attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.errors import UsageError
from bitproof.harness.strategies import floats
from bitproof.harness.strategies.encoding import Dtype, encode

Gate = Literal["log", "plain", "bounded"]
Kind = Literal["usual", "gentle", "saturated", "blocks", "edges", "steps"]
Rate = Literal["usual", "absent", "extreme"]

SUBCHUNK = 16
_SIGN = 0x80000000


def _patterns(*values: float) -> tuple[str, ...]:
    return tuple(floats.pattern(value) for value in values)


BOUNDS = _patterns(-5.0, -4.0, -0.5, -2.75)

# 15 steps of -5.914 stay within e^88.72, the largest power that fp32 holds; 15 of -5.916 do not. With the
# third pattern fp32 holds the decay of each step, but not the quotient of two rows' decays.
_LOG_STEPS = (_patterns(-5.916), _patterns(-5.914), _patterns(0.0, -60.0, -120.0), _patterns(0.0))
_RAW_STEPS = (_patterns(20.0), _patterns(-20.0), _patterns(0.0, 30.0, -30.0))

# Where an exponential leaves fp32's range, a sigmoid rounds to 1 or softplus changes its formula (at 20).
_LOG_EDGES = _patterns(-0.0, -5.914, -5.916, -60.0, -87.5, -104.0, -(2.0**-126))
_RAW_EDGES = _patterns(20.0, 20.125, 19.875, 16.625, 17.5, 88.5, 89.0, -16.625, -88.0, -104.0, 0.0)
_RAW_SATURATED = _patterns(32.0, 17.5, 89.0)


@dataclass(frozen=True, kw_only=True)
class Gates:
    """How a kernel's gate is filled.

    gate   log, plain or bounded: see the module's docstring
    kind   usual      log-decays from -4 to -2^-8; raw values that look standard normal
           gentle     hardly any decay: log-decays above -2^-7, one in eight zero; raw values with the
                      biases of the GDN2 report
           saturated  the bound and its neighbours in fp32; raw values that saturate
           blocks     in about half of the sub-chunks of 16 rows all are saturated, the others are usual
           edges      one in four at the edge of some exponential's range, the others usual
           steps      the patterns in `bits` in turn, starting anew at each sequence's first token
    bound  fp32 pattern of a lower bound: that of a bounded gate, or of log-decays that saturate
    bits   fp32 patterns of the steps
    rate   e^A_log: usual (from 1 to 16), absent, or extreme (alternately infinite and subnormal, which only
           a bounded gate is defined for)
    biased whether a raw gate has dt_bias
    seed   of all numbers

    Raises UsageError for a combination that no gate has.
    """

    gate: Gate = "log"
    kind: Kind = "usual"
    bound: str = BOUNDS[0]
    bits: tuple[str, ...] = ()
    rate: Rate = "usual"
    biased: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        """Reject what `build` could not turn into a gate."""
        if not self.lower_bound < 0.0:
            raise UsageError(f"gates: the bound must be below 0, got {self.lower_bound}")
        if (self.kind == "steps") != bool(self.bits):
            raise UsageError(
                "gates of kind 'steps' need patterns in `bits`, and no other kind does"
            )
        if self.rate != "usual" and self.gate != "bounded":
            raise UsageError(f"gates: only a bounded gate has the rate {self.rate!r}")
        for pattern in self.bits:
            floats.word(pattern)

    @property
    def lower_bound(self) -> float:
        """The bound as a number, exact in fp32."""
        return floats.number(self.bound)

    def build(
        self,
        positions: Tensor,
        heads: int,
        width: int,
        dtype: Dtype,
        *,
        decay: Dtype | None = None,
    ) -> dict[str, Tensor]:
        """g [T, heads, width] and a raw gate's parameters; g in `decay`, else fp32 or, raw, `dtype`.

        These are dt_bias [heads, width] and A_log [heads], where not absent: both fp32, different in each
        head. `positions` [T] is each row's place in its sequence.
        """
        device = positions.device
        rows = positions[:, None, None].expand(-1, heads, width)
        words = generators.hash_words(self._salt_seed(0), 0, rows.numel(), device).reshape(
            rows.shape
        )
        if self.gate == "log":
            return {"g": encode(self._fill(words, rows, self._decays(words)), decay or "fp32")}
        normal = _words(
            generators.normal(generators.hash_words(self._salt_seed(1), 0, rows.numel(), device))
        )
        raw = self._fill(words, rows, normal.reshape(rows.shape))
        built = {"g": encode(raw, decay or dtype)}
        if self.biased:
            built["dt_bias"] = self._biases(heads, width, device)
        if self.rate != "absent":
            built["A_log"] = self._rates(heads, device)
        return built

    def features(self) -> list[str]:
        """What the gates cover, in the words that the run's summary counts."""
        found = {
            f"{self.gate} gate": True,
            f"{self.kind} gates": True,
            f"{self.rate} A_log": self.rate != "usual",
            "absent dt_bias": not self.biased,
        }
        return [name for name, holds in found.items() if holds]

    def _salt_seed(self, salt: int) -> int:
        return self.seed * 8 + salt

    def _decays(self, words: Tensor) -> Tensor:
        if self.kind != "gentle":
            return _words(generators.log_uniform(words, -8, 1)) | _SIGN
        tiny = _words(generators.log_uniform(words, -24, -8)) | _SIGN
        return torch.where(words >> 9 & 7 == 0, 0, tiny)

    def _fill(self, words: Tensor, rows: Tensor, usual: Tensor) -> Tensor:
        """fp32 words of the gates: `usual` except where the kind says otherwise."""
        log = self.gate == "log"
        match self.kind:
            case "saturated" if log:
                return floats.word(self.bound) + words % 3 - 1
            case "saturated":
                return _pick(_RAW_SATURATED, words)
            case "blocks":
                blocks = rows // SUBCHUNK
                count = int(blocks.max()) + 1 if blocks.numel() else 0
                chosen = (
                    generators.hash_words(self._salt_seed(2), 0, count, rows.device)[blocks] & 1
                )
                top = floats.word(self.bound if log else _RAW_SATURATED[0])
                return torch.where(chosen == 1, top, usual)
            case "edges":
                edges = _pick(_LOG_EDGES if log else _RAW_EDGES, words >> 11)
                return torch.where(words >> 9 & 3 == 0, edges, usual)
            case "steps":
                return _pick(self.bits, rows)
            case _:
                return usual

    def _biases(self, heads: int, width: int, device: torch.device) -> Tensor:
        """dt_bias in (-1, 1), or from -6.9 to -2.25 as in the GDN2 report; odd multiples of 2^-17.

        Raw values are multiples of 2^-16, so that no sum of the two is zero. At zero, an infinite rate would
        make the derivative infinite.
        """
        words = generators.hash_words(self._salt_seed(3), 0, heads * width, device)
        low, high = (-904_400, -294_912) if self.kind == "gentle" else (-(1 << 17), 1 << 17)
        steps = low + (words >> 8) % (high - low) | 1
        return (steps.to(torch.float32) * 2.0**-17).reshape(heads, width)

    def _rates(self, heads: int, device: torch.device) -> Tensor:
        """A_log from 0 to 2.75, or alternately near 90 and -90."""
        slot = generators.permutation(self._salt_seed(4), heads, device)
        if self.rate == "extreme":
            sign = 1 - 2 * (torch.arange(heads, device=device) % 2)
            return (90 * sign + 2.0**-4 * slot).to(torch.float32)
        within = generators.hash_words(self._salt_seed(5), 0, heads, device) % 64
        return ((slot * 64 + within) * 704 // (64 * heads)).to(torch.float32) * 2.0**-8


def _pick(patterns: tuple[str, ...], words: Tensor) -> Tensor:
    """The word of one pattern for each of `words`, chosen by it modulo the number of patterns."""
    table = torch.tensor([floats.word(pattern) for pattern in patterns], device=words.device)
    return table[words % len(patterns)]


def _words(values: Tensor) -> Tensor:
    return values.view(torch.int32).to(torch.int64) & 0xFFFFFFFF


ORDINARY: tuple[Kind, ...] = ("usual", "gentle")
KINDS: tuple[Kind, ...] = (*ORDINARY, "saturated", "blocks", "edges", "steps", "steps")


@cache
@st.composite
def gates(
    draw: Any,
    gate: Gate,
    *,
    kinds: tuple[Kind, ...] = KINDS,
    absent: bool = False,
    biased: bool = True,
) -> Gates:
    """`Gates` of one gate, without A_log if `absent`, without dt_bias unless `biased`.

    Shrinks toward the first of `kinds`, with the bound -5. Rates are extreme only if `kinds` has all kinds.
    """
    kind = draw(st.sampled_from(kinds))
    bits = draw(st.sampled_from(_LOG_STEPS if gate == "log" else _RAW_STEPS))
    extreme = draw(st.sampled_from((False, False, False, True)))
    rate: Rate = "absent" if absent else "usual"
    if extreme and kinds == KINDS and gate == "bounded" and not absent and biased:
        rate = "extreme"
    return Gates(
        gate=gate,
        kind=kind,
        bound=draw(st.sampled_from(BOUNDS)),
        bits=bits if kind == "steps" else (),
        rate=rate,
        biased=biased,
        seed=draw(st.integers(0, 2**16)),
    )
