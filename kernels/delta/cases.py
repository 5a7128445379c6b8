"""Cases of the gated delta rule: packed sequences, gates, and operands whose products nearly cancel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.case import Launch, Scale
from bitproof.harness.errors import UsageError
from bitproof.harness.strategies import correlated, floats, gates, launches, packed, ragged
from bitproof.harness.strategies.encoding import Dtype, encode
from bitproof.harness.strategies.gates import Gate, Gates
from bitproof.kernels.delta.packing import TOKENS

CHUNK, SUBCHUNK = 64, 16
# What contracts allow, as relative root mean square errors: the GDN2 report's of correlated bf16 operands,
# and those that flash-linear-attention's tests ask of ordinary ones. dg, dA_log and ddt_bias, sums whose
# terms cancel, are judged by their terms alone.
LIMIT = 0.008
_OUTPUTS = {"o": 0.005, "final_state": 0.005}
_TOLERANCES = {
    "gdn2": _OUTPUTS
    | dict.fromkeys(("dq", "dk", "dv", "d_initial_state"), 0.01)
    | dict.fromkeys(("db", "dw"), 0.02),
    "kda": _OUTPUTS | dict.fromkeys(("dq", "dk", "dv", "d_initial_state"), 0.008) | {"dbeta": 0.02},
}
USUAL_GATES = Gates()
GARBAGE = ("0x7fc00000", floats.pattern(1e30))

Kind = Literal["gdn2", "kda"]
Erase = Literal["usual", "sparse", "doubled", "zero"]


@dataclass(frozen=True, kw_only=True)
class DeltaCase:
    """One call: the sequences' tokens one after another, then `slack` rows that belong to no sequence.

    kind       gdn2 (vector gates b and w) or kda (one number beta for each token and value head)
    garbage    the fp32 pattern that slack rows hold in every tensor
    heads      of q and k; `groups` value heads share each; keys: K; values: V
    gate_dtype of b, w or beta, where it is not the others'
    decay_dtype of g, where it is not fp32 (log-decays) or the others' (raw gates)
    promised   that no log-decay is below -5, of a gate that is not bounded
    operands   see `harness.strategies.correlated`
    tiny       one row of q and k in eight is zero, one in eight some 2^-12 of its size
    erase      b or beta: in (0, 1); sparse, with exact zeros and ones (w too); doubled; or zero
    gradient   a backward pass, with do and dht; `retain` keeps the forward pass's intermediates
    initial    whether there are initial states
    scale      fp32 pattern; empty for K^-1/2
    precision  the policy's name, see `oracles.precision`
    seed       of every number but the gates'
    """

    kind: Kind = "gdn2"
    lengths: tuple[int, ...] = (1,)
    slack: int = 0
    garbage: str = GARBAGE[0]
    heads: int = 1
    groups: int = 1
    keys: int = 16
    values: int = 16
    dtype: Dtype = "bf16"
    gate_dtype: Dtype | None = None
    decay_dtype: Dtype | None = None
    promised: bool = False
    operands: correlated.Kind = "normal"
    tiny: bool = False
    gates: Gates = USUAL_GATES
    erase: Erase = "usual"
    initial: bool = False
    normalise: bool = True
    state_v_first: bool = False
    scale: str = ""
    precision: str = "upstream"
    gradient: bool = False
    retain: bool = False
    seed: int = 0
    launch: Launch = Launch(block=CHUNK)

    def __post_init__(self) -> None:
        """Reject what is no call: UsageError, naming the field."""
        least = {"slack": 0, "heads": 1, "groups": 1, "keys": 1, "values": 1}
        for name, count in least.items():
            if getattr(self, name) < count:
                raise UsageError(
                    f"a delta case's {name} must be at least {count}, it is {getattr(self, name)}"
                )
        if not self.lengths or min(self.lengths) < 0:
            raise UsageError(f"a delta case's lengths count tokens, they are {self.lengths}")
        if self.scale and math.isnan(floats.number(self.scale)):
            raise UsageError(f"a delta case's scale must be a number, it is {self.scale}")

    @property
    def rows(self) -> int:
        """T, slack rows included."""
        return sum(self.lengths) + self.slack

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """q, k, v, g, b and w or beta, cu_seqlens; what the options add: see `kernels.delta.arguments`."""
        t, hv = self.rows, self.heads * self.groups
        places = packed.positions(self.lengths, self.slack, device)
        built = {
            "q": self._operand(0, correlated.QUERIES[self.operands], device),
            "k": self._operand(1, correlated.KEYS[self.operands], device),
            "v": self._normal(2, (t, hv, self.values), device),
        }
        built |= self.gates.build(places, hv, self.keys, self.dtype, decay=self.decay_dtype)
        if self.kind == "gdn2":
            built["b"] = self._fractions(3, (t, hv, self.keys), device, self.erase)
            write: Erase = "sparse" if self.erase == "sparse" else "usual"
            built["w"] = self._fractions(4, (t, hv, self.values), device, write)
        else:
            built["beta"] = self._fractions(3, (t, hv), device, self.erase)
        if self.gradient:
            built["do"] = self._normal(5, (t, hv, self.values), device)
        self._spoil(built)
        if self.initial:
            built["initial_state"] = self._states(6, device)
        if self.gradient:
            built["dht"] = self._states(7, device)
        starts = ragged.offsets(self.lengths)
        built["cu_seqlens"] = torch.tensor(starts, dtype=torch.int32, device=device)
        return built

    def params(self) -> dict[str, Any]:
        """scale, gate, lower_bound, normalise, state_v_first, precision, limits, bounded, and retain."""
        named = {
            "scale": floats.number(self.scale) if self.scale else None,
            "gate": self.gates.gate,
            "lower_bound": self.gates.lower_bound,
            "normalise": self.normalise,
            "state_v_first": self.state_v_first,
            "precision": self.precision,
            "limits": self.limits,
            "bounded": self.promised,
        }
        return {**named, "retain": self.retain} if self.gradient else named

    @property
    def limits(self) -> dict[str, float]:
        """Relative RMS errors that a contract allows, by output: where a case is as that contract's are."""
        if self._reported:
            return {} if self.gradient else {"o": LIMIT}
        return dict(_TOLERANCES[self.kind]) if self._ordinary else {}

    @property
    def _ordinary(self) -> bool:
        """Whether a case is as flash-linear-attention's tests have them, in fp16 or fp32."""
        return (
            (self.operands, self.erase) == ("normal", "usual")
            and (self.normalise, self.tiny) == (True, False)
            and self.dtype != "bf16"
            and self.gates.kind in gates.ORDINARY
            and self.gates.rate != "extreme"
            and sum(self.lengths) >= CHUNK
        )

    @property
    def _reported(self) -> bool:
        """Whether a case is as those of the report, under a policy that is to meet its limit.

        With fewer than 32 channels, with initial states, or where nothing is ever forgotten, rounding
        what the targeted policy leaves in bf16 comes to the limit by itself.
        """
        forgetting = self.gates.kind == "usual" or (
            self.gates.kind == "gentle" and self.gates.gate != "log"
        )
        return (
            (self.operands, self.dtype) == ("correlated", "bf16")
            and (self.normalise, self.tiny, self.erase) == (True, False, "usual")
            and forgetting
            and self.gates.rate != "extreme"
            and self.keys >= 32
            and not self.initial
            and self.precision != "upstream"
            and sum(self.lengths) >= 32
        )

    def features(self) -> list[str]:
        """The lengths, the gates, what the numbers are like, the options, the launch."""
        found = {
            "slack rows": self.slack > 0,
            "several heads": self.heads > 1,
            "grouped heads": self.groups > 1,
            "K not a power of two": self.keys & (self.keys - 1) != 0,
            "K and V differ": self.keys != self.values,
            "tiny rows": self.tiny,
            "initial states": self.initial,
            "not normalised": not self.normalise,
            "gates of another type": self.gate_dtype not in (None, self.dtype),
            "decays of another type": self.decay_dtype is not None,
            "a promise of shallow decays": self.promised,
            "a negative scale": self.scale != "" and floats.number(self.scale) < 0,
            "V before K in states": self.state_v_first,
            "intermediates retained": self.retain,
            "the report's limit": self._reported and not self.gradient,
            "upstream's tolerances": self._ordinary,
        }
        return [
            *packed.features(self.lengths, CHUNK, SUBCHUNK),
            *(name for name, holds in found.items() if holds),
            *self.gates.features(),
            f"{self.operands} operands",
            f"{self.erase} erasing",
            f"{self.precision} precision",
            self.dtype,
            *launches.features(self.launch),
        ]

    def _salt_seed(self, salt: int) -> int:
        return self.seed * 16 + salt

    def _normal(self, salt: int, shape: tuple[int, ...], device: torch.device) -> Tensor:
        return correlated.affine((1, 0), self._salt_seed(salt), shape, device, self.dtype)

    def _operand(self, salt: int, form: tuple[int, int], device: torch.device) -> Tensor:
        """q or k [T, H, K]; their norms near 1 where the kernel does not see to it."""
        shape = (self.rows, self.heads, self.keys)
        unit = not self.normalise
        x = correlated.affine(form, self._salt_seed(salt), shape, device, self.dtype, unit=unit)
        if not self.tiny:
            return x
        words = (
            generators.hash_words(self._salt_seed(8 + salt), 0, self.rows * self.heads, device) & 7
        )
        factor = (words > 1).to(torch.float32) + (words == 1).to(torch.float32) * 2.0**-12
        return _encode(x.to(torch.float32) * factor.reshape(self.rows, self.heads, 1), self.dtype)

    def _fractions(
        self, salt: int, shape: tuple[int, ...], device: torch.device, kind: Erase
    ) -> Tensor:
        """Multiples of 2^-8 between 0 and 1, or what `kind` makes of them; exact in every type."""
        words = generators.hash_words(self._salt_seed(salt), 0, torch.Size(shape).numel(), device)
        dtype = self.gate_dtype or self.dtype
        values = ((words >> 8) % 255 + 1).to(torch.float32) * 2.0**-8
        match kind:
            case "sparse":
                values = torch.where(words & 3 == 0, (words >> 2 & 1).to(torch.float32), values)
            case "doubled":
                values = values * 2
            case "zero":
                values = torch.zeros_like(values)
        return _encode(values, dtype).reshape(shape)

    def _states(self, salt: int, device: torch.device) -> Tensor:
        """fp32 [N, HV, K, V], or with V before K."""
        inner = (self.values, self.keys) if self.state_v_first else (self.keys, self.values)
        shape = (len(self.lengths), self.heads * self.groups, *inner)
        words = generators.hash_words(self._salt_seed(salt), 0, torch.Size(shape).numel(), device)
        return generators.normal(words).reshape(shape)

    def _spoil(self, tensors: Mapping[str, Tensor]) -> None:
        """Put garbage into the slack rows of tensors that have a row for each token."""
        used = sum(self.lengths)
        for tensor in (tensors[name] for name in TOKENS if name in tensors):
            word = torch.tensor([floats.word(self.garbage)], device=tensor.device)
            tensor[used:] = encode(word, _NAMED[tensor.dtype])


_NAMED: dict[torch.dtype, Dtype] = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
}


def _encode(values: Tensor, dtype: Dtype) -> Tensor:
    """fp32 values in `dtype`, which has them all or cuts them toward zero."""
    return encode(values.view(torch.int32).to(torch.int64) & 0xFFFFFFFF, dtype)


# What is compiled in, each with its plainest value first. (H, groups, K, V) are few, since each costs
# seconds to compile on a card and, the large ones, to interpret.
_SMALL = ((1, 1, 16, 16), (2, 1, 32, 24), (1, 2, 32, 16), (2, 2, 24, 32), (1, 1, 40, 48))
_LARGE = ((1, 1, 16, 16), (2, 1, 64, 64), (1, 2, 128, 64), (3, 1, 60, 40), (2, 2, 128, 128))
_LAUNCHES = (
    Launch(block=CHUNK),
    Launch(block=CHUNK, num_warps=8, num_stages=1),
    Launch(block=CHUNK, num_warps=2, num_stages=3, misalign=1),
)


def _options(*, chunked: bool, gradient: bool, on_card: bool) -> dict[str, tuple[Any, ...]]:
    gate: tuple[Gate, ...] = ("log", "bounded", "plain")
    return {
        "size": _LARGE if on_card else _SMALL,
        "dtype": ("bf16", "bf16", "bf16", "fp16", "fp32"),
        "gate": gate,
        "absent": ("neither", "A_log", "dt_bias", "neither", "both"),
        "initial": (False, True),
        "normalise": (True, True, False),
        "state_v_first": (False, True),
        # A recurrent kernel stores nothing between tokens but its state, in fp32.
        "precision": ("upstream", "targeted", "fp32") if chunked else ("fp32",),
        "retain": (False, True) if gradient else (False,),
        "launch": _LAUNCHES,
        "gate_dtype": (None, None, "fp32"),
    }


_Style = Literal["any", "reported", "lasting"]
_KINDS: dict[_Style, tuple[gates.Kind, ...]] = {
    "any": gates.KINDS,
    "reported": gates.ORDINARY,
    "lasting": ("gentle",),
}

# Combinations of options that a run on a card meets, each of which it compiles.
_COMBINATIONS, _NIGHTLY = 16, 96


@cache
@st.composite
def _chosen(draw: Any, *, chunked: bool, gradient: bool, scale: Scale) -> dict[str, Any]:
    """One value of each option; on a card one of few combinations, the first of plainest values."""
    options = _options(chunked=chunked, gradient=gradient, on_card=scale.on_card)
    if not scale.on_card:
        return {name: draw(st.sampled_from(values)) for name, values in options.items()}
    count = _NIGHTLY if scale.nightly else _COMBINATIONS
    number = draw(st.integers(0, count - 1))
    return {
        name: values[_turns(place, count)[number] % len(values) if number else 0]
        for place, (name, values) in enumerate(options.items())
    }


@cache
def _turns(place: int, count: int) -> list[int]:
    """An order of its own for each option, so that each value is met as often as another."""
    order: list[int] = generators.permutation(place, count, torch.device("cpu")).tolist()
    return order


@cache
@st.composite
def delta_cases(
    draw: Any, *, kind: Kind, chunked: bool, gradient: bool, scale: Scale = Scale()
) -> DeltaCase:
    """A few sequences; several hundred tokens on a card, up to about two chunks in the interpreter.

    Two in five have the ordinary gates and the correlated operands of the GDN2 report, and where that
    costs no compilation its type and normalisation. One in five has gentle gates, by which what every token
    wrote is still there at the end, and keeps all in fp32, so that a rounding too many shows. Shrinks
    toward one token of one sequence, one head, ordinary numbers and the plainest options.
    """
    chosen = draw(_chosen(chunked=chunked, gradient=gradient, scale=scale))
    heads, groups, keys, values = chosen.pop("size")
    absent, gate = chosen.pop("absent"), chosen.pop("gate")
    style: _Style = draw(st.sampled_from(("any", "reported", "lasting", "any", "reported")))
    # Drawn whether or not they are used: what shrinks by a choice must not shift the others.
    any_dtype: Dtype = draw(st.sampled_from(("bf16", "fp16", "fp32")))
    operands: correlated.Kind = draw(st.sampled_from(correlated.KINDS))
    erase: Erase = draw(st.sampled_from(("usual", "sparse", "doubled", "zero")))
    if style == "reported" and not scale.on_card:
        chosen |= {"dtype": "bf16", "normalise": True, "initial": False}
    if style == "lasting" and not scale.on_card:
        chosen |= {"dtype": any_dtype, "precision": "fp32"}
    return DeltaCase(
        kind=kind,
        lengths=draw(
            packed.lengths(sequences=5, most=draw(st.sampled_from(_budgets(chunked, scale))))
        ),
        slack=draw(packed.slack(CHUNK, SUBCHUNK)),
        garbage=draw(st.sampled_from(GARBAGE)),
        heads=heads,
        groups=groups,
        keys=keys,
        values=values,
        operands="correlated" if style == "reported" else operands,
        tiny=draw(st.booleans()) and style == "any",
        gates=draw(
            gates.gates(
                gate,
                kinds=_KINDS[style],
                absent=absent in ("A_log", "both") and gate == "bounded",
                biased=gate == "log" or absent not in ("dt_bias", "both"),
            )
        ),
        erase=erase if style == "any" else "usual",
        scale=draw(st.sampled_from(("", "", floats.pattern(1.0), floats.pattern(-0.3)))),
        gradient=gradient,
        seed=draw(st.integers(0, 2**16)),
        **chosen,
    )


def _budgets(chunked: bool, scale: Scale) -> tuple[int, ...]:
    """Tokens of a case in all; the first is what most cases stay below."""
    if scale.on_card:
        return (320, 320, 640, 4096) if scale.nightly else (320, 320, 640)
    return (80, 80, 80, 132) if chunked else (40, 40, 40, 132)
