"""A default run shows what a built-in kernel documents: each option, each type, both ends of each range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch

from bitproof.harness import lanes, layouts
from bitproof.harness.case import Case, Inputs, build
from bitproof.harness.search import falsify, profiles
from bitproof.harness.spec import KernelSpec
from bitproof.harness.subjects.discovery import find
from bitproof.kernels.quantise.arguments import MOST
from bitproof.kernels.quantise.cases import StaticCase

CPU = torch.device("cpu")
SPECS = {found.spec.name: found.spec for found in find()}

Shows = Callable[[Any, Inputs], bool]
Options = Mapping[str, Shows]


def _launch(name: str, *values: Any) -> dict[str, Shows]:
    """Each of these values of a field of the launch."""
    return {
        f"{name} {value}": lambda case, _, value=value: getattr(case.launch, name) == value
        for value in values
    }


def _field(name: str, *values: Any) -> dict[str, Shows]:
    """Each of these values of a field of the case."""
    return {
        f"{name} {value}": lambda case, _, v=value: getattr(case, name) == v for value in values
    }


def _types(name: str, *dtypes: torch.dtype) -> dict[str, Shows]:
    """Each of these types of an input."""
    return {
        f"{name} in {dtype}": lambda _, inputs, dtype=dtype: inputs.tensors[name].dtype == dtype
        for dtype in dtypes
    }


def _holds(name: str, what: str, test: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Shows]:
    """Whether an input has an element of that kind."""
    return {f"{name} with {what}": lambda _, inputs: bool(test(inputs.tensors[name].float()).any())}


def _shape(what: str, shows: Callable[[Inputs], bool]) -> dict[str, Shows]:
    return {what: lambda _, inputs: shows(inputs)}


FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16
FLOATS = (FP32, BF16, FP16)
LAUNCHES = {
    **_launch("num_warps", 1, 2, 4, 8),
    **_launch("num_stages", 1, 2, 3, 4),
    "misaligned": lambda case, _: case.launch.misalign > 0,
}
LARGEST = torch.finfo(torch.float32).max
VALUES = {
    **_types("x", *FLOATS),
    **_holds("x", "NaN", torch.isnan),
    **_holds("x", "both zeros", lambda x: (x == 0) & torch.signbit(x)),
    **_holds("x", "the largest number", lambda x: x.abs() == LARGEST),
    **_holds("x", "infinity", lambda x: torch.isposinf(x)),
    **_holds("x", "minus infinity", lambda x: torch.isneginf(x)),
    **_holds("x", "a subnormal", lambda x: (x != 0) & (x.abs() < 2.0**-126)),
}
CASTS: Options = {
    **VALUES,
    **LAUNCHES,
    **_field("count", 0, 1),
    **_launch("block", 128, 256, 1024),
    "a hundred programs": lambda case, _: case.count >= 100 * case.launch.block,
}


def _matrix(case: Any) -> Any:
    return case.matrix if isinstance(case, StaticCase) else case


MATRICES: Options = {
    **VALUES,
    **LAUNCHES,
    **_launch("block", 128, 512, 1024),
    **_shape("no row", lambda inputs: inputs.tensors["x"].shape[0] == 0),
    **_shape("no column", lambda inputs: inputs.tensors["x"].shape[1] == 0),
    **_shape("many rows", lambda inputs: inputs.tensors["x"].shape[0] > 16),
    "rows apart": lambda case, _: case.launch.row_padding > 0,
    "a whole last group": lambda case, _: _matrix(case).columns % _matrix(case).group == 0,
    "a partial last group": lambda case, _: _matrix(case).columns % _matrix(case).group > 0,
    "a group of zeros beside others": lambda case, _: _matrix(case).values.blank,
}


def _groups(least: int, *usual: int) -> Options:
    return {**MATRICES, **_field("group", least, *usual, MOST)}


def _codes(*codes: int) -> dict[str, Shows]:
    """Each of these e8m0 codes among the scales of the answer."""

    def shows(case: Any, inputs: Inputs, code: int) -> bool:
        if inputs.tensors["x"].numel() == 0:
            return False
        assert inputs.case is not None
        spec = SPECS["e2m1_group" if case.packed == 2 else "ue8m0_group"]
        scale = spec.oracle(inputs.tensors, {**inputs.params, "launch": case.launch})["scale"]
        return bool((scale == code).any())

    return {f"code {c}": lambda case, inputs, c=c: shows(case, inputs, c) for c in codes}


STATIC: Options = {
    **MATRICES,
    "the smallest scale": lambda _, inputs: float(inputs.tensors["scale"]) == 2.0**-126,
    "the largest scale": lambda _, inputs: float(inputs.tensors["scale"]) == 2.0**126,
}
STORES: Options = {
    **_types("k", *FLOATS),
    **LAUNCHES,
    **_launch("block", 64, 256, 1024),
    **_holds("k", "NaN", torch.isnan),
    **_holds("v", "infinity", torch.isinf),
    **_holds("indices", "a token without a slot", lambda index: index < 0),
    **_field("tokens", 0),
    **_field("heads", 1, 64),
    **_field("dim", 256),
    "slots out of order": lambda case, _: case.shuffled and case.tokens > 1,
    "a partial block": lambda case, _: case.dim % 32 > 0,
    "rows apart": lambda case, _: case.launch.row_padding > 0,
}

DSRELU: Options = {
    **LAUNCHES,
    **_field("subtiles", 1, 2, 4),
    **_field("quantised", False, True),
    **_field("columns", 1),
    **_field("depth", 1),
    **_field("block_m", 16, 32, 64, 128),
    **_launch("block", 16, 32, 64, 128),
    "somebody else's group": lambda case, _: -1 in case.experts,
    "no token": lambda case, _: case.rows == 0,
    "slack": lambda case, _: case.slack > 0,
    "an empty group": lambda case, _: 0 in case.tokens,
    "groups out of order": lambda case, _: list(case.experts) != sorted(case.experts),
    "ten tiles of rows in a group": lambda case, _: max(case.tokens) > 9 * case.block_m,
    "ten tiles of columns": lambda case, _: case.columns > 9 * case.launch.block,
    "a tile with a tail along K": lambda case, _: case.depth % case.block_k > 0,
    "rows apart": lambda case, _: case.launch.row_padding > 0,
    "full buffers": lambda case, _: case.buffers,
    **_holds("c", "NaN", torch.isnan),
    **_holds("alpha", "zero", lambda x: x == 0),
    **_holds("alpha", "a minus", lambda x: x < 0),
    **_holds("prob", "zero", lambda x: x == 0),
}
SMALL: Options = {
    **{name: shows for name, shows in DSRELU.items() if name != "block_m 16"},
    **_field("block_k", 32, 64),
    **{
        f"{name} code {code}": lambda _, inputs, name=name, code=code: bool(
            (inputs.tensors[f"{name}_scale"] == code).any()
        )
        for name in "ab"
        for code in (0, 254)
    },
}
LARGE: Options = {**DSRELU, **_field("block_k", 16, 32, 64)}

LINEAR: Options = {
    **LAUNCHES,
    **_field("out", "fp32", "bf16", "fp16"),
    **_field("parts", 1, 2),
    **_field("decoded", False, True),
    **_field("across", False, True),
    **_field("rows", 0, 1),
    **_field("columns", 1),
    **_launch("block", 32, 128),
    "rows apart": lambda case, _: case.launch.row_padding > 0,
    "a partial block along K": lambda case, _: case.depth % 128 > 0,
    "a partial block of columns": lambda case, _: case.columns % 128 > 0,
    "a NaN": lambda case, _: case.special,
}
OF_LINEAR: Options = {
    **LINEAR,
    **_field("depth", 0),
    **_launch("block", 16),
    "more tiles of rows than take each tile of columns": lambda case, _: (
        case.rows > 32 * case.block_m
    ),
}
OF_POWERS: Options = {
    **LINEAR,
    **_field("powers", True),
    **{
        f"{name} code {code}": lambda _, inputs, name=name, code=code: bool(
            (inputs.tensors[f"{name}_scale"] == code).any()
        )
        for name in "ab"
        for code in (0, 254)
    },
}
VECTOR: Options = {
    **LAUNCHES,
    **_types("x", BF16, FP16),
    **_field("out", "fp32", "bf16", "fp16"),
    **_field("splits", 1, 2, 4, 8, 64),
    **_field("powers", False, True),
    **_field("decoded", False, True),
    **_field("columns", 0, 1),
    **_launch("block", 1, 16, 64, 128),
    "rows apart": lambda case, _: case.launch.row_padding > 0,
    **{
        f"code {code}": lambda case, inputs, code=code: (
            inputs.tensors["b_scale"].dtype == torch.uint8
            and bool((inputs.tensors["b_scale"] == code).any())
        )
        for code in (0, 254)
    },
}
ROUTING: Options = {
    "no route": lambda case, _: case.routing.tokens == 0,
    "one expert": lambda case, _: len(case.routing.sizes) == 1,
    "routes elsewhere": lambda case, _: case.routing.elsewhere > 0,
    **{
        f"{k} choices of a token": lambda case, _, k=k: case.routing.top_k == k
        for k in (1, 2, 3, 4)
    },
    "an expert that nobody chooses": lambda case, _: 0 in case.routing.sizes,
}
ALIGNMENT: Options = {
    **ROUTING,
    **_launch("block", 1, 4, 16, 64),
    "three hundred experts": lambda case, _: len(case.routing.sizes) == 300,
    "several programs": lambda case, _: case.routing.tokens * case.routing.top_k > 128,
}
EXPERTS: Options = {
    **ROUTING,
    **LAUNCHES,
    **_field("decoded", False, True),
    **_field("signed", False, True),
    **_field("width", 128, 256),
    **_field("inner", 128, 256),
    **_field("block_m", 16, 32),
    "five choices of a token": lambda case, _: case.routing.top_k == 5,
    "thirty-three experts": lambda case, _: len(case.routing.sizes) == 33,
    "rows apart": lambda case, _: case.launch.row_padding > 0,
}

GATE = {
    "an extreme rate": lambda case, _: case.gates.rate == "extreme",
    "no A_log": lambda _, inputs: "A_log" not in inputs.tensors and inputs.params["gate"] != "log",
    "no dt_bias": lambda case, _: not case.gates.biased,
    **{
        f"{gate} gate": lambda case, _, gate=gate: case.gates.gate == gate
        for gate in ("log", "plain", "bounded")
    },
    **{
        f"a bound of {bound}": lambda case, _, bound=bound: (
            case.gates.gate == "bounded" and case.gates.lower_bound == bound
        )
        for bound in (-5.0, -0.5)
    },
}
DELTA: Options = {
    **GATE,
    **_types("q", *FLOATS),
    **_types("g", *FLOATS),
    **_field("initial", False, True),
    **_field("normalise", False, True),
    **_field("state_v_first", False, True),
    **_field("promised", True),
    **_field("keys", 1),
    **_field("values", 1, 256),
    **_launch("num_warps", 2, 4, 8),
    "seven heads": lambda case, _: case.heads >= 7,
    "three value heads to a head": lambda case, _: case.groups >= 3,
    "K is no power of two": lambda case, _: case.keys & (case.keys - 1) > 0,
    "slack": lambda case, _: case.slack > 0,
    "no token": lambda case, _: sum(case.lengths) == 0,
    "an empty sequence": lambda case, _: 0 in case.lengths,
    "a scale of 0": lambda case, _: case.params()["scale"] == 0,
    "a scale below 0": lambda case, _: (case.params()["scale"] or 0) < 0,
    "no scale": lambda case, _: case.params()["scale"] is None,
    "b or beta in a type of their own": lambda case, _: case.gate_dtype not in (None, case.dtype),
}
BY_CHUNK: Options = {**DELTA, **_field("precision", "upstream", "targeted", "fp32")}
FORWARD: Options = {
    **BY_CHUNK,
    **_field("keys", 256),
    "five chunks": lambda case, _: max(case.lengths) > 256,
    "seven sequences": lambda case, _: len(case.lengths) >= 7,
}
BACKWARD: Options = {**BY_CHUNK, **_field("retain", False, True)}
TOKENS: Options = {
    **DELTA,
    **_field("keys", 256),
    "128 value heads": lambda case, _: case.heads * case.groups == 128,
    "nineteen sequences": lambda case, _: len(case.lengths) >= 19,
}
RANKS: Options = {
    **_field("ranks", 1, 2, 4, 8),
    **{
        name: lambda case, inputs, shows=shows: shows(case.call, inputs)
        for name, shows in {
            **_types("q", *FLOATS),
            **_types("g", FP32, BF16),
            **_field("initial", False, True),
            **_field("normalise", False, True),
            **_field("state_v_first", False, True),
            **_field("precision", "upstream", "targeted", "narrow", "fp32"),
            **{f"{g} gate": GATE[f"{g} gate"] for g in ("log", "plain", "bounded")},
            "three heads": lambda call, _: call.heads >= 3,
            "two value heads to a head": lambda call, _: call.groups >= 2,
            "a scale below 0": lambda call, _: (call.params()["scale"] or 0) < 0,
            "slack": lambda call, _: call.slack > 0,
            "an empty sequence": lambda call, _: 0 in call.lengths,
        }.items()
    },
}

DOCUMENTED: dict[str, Options] = {
    **dict.fromkeys(("cast_e4m3", "cast_e5m2", "cast_bf16", "cast_fp16", "round_e4m3"), CASTS),
    "per_tensor_static": STATIC,
    "per_token_group": _groups(1, 32, 64, 128),
    "ue8m0_group": {**_groups(1, 32, 64, 128), **_codes(105, 247, 255)},
    "ue8m0_inplace": _groups(1, 32, 64, 128),
    "e2m1_group": {**_groups(2, 16, 32, 64), **_codes(1, 253, 255)},
    **dict.fromkeys(("kv_store_int8", "kv_store_fp8"), STORES),
    **dict.fromkeys(("dsrelu_bf16", "dsrelu_atomic"), LARGE),
    "dsrelu_fp8": SMALL,
    "block_scaled_linear": OF_LINEAR,
    "power_of_two_linear": OF_POWERS,
    "split_k_linear": VECTOR,
    "align_tokens": ALIGNMENT,
    "moe_prefill": EXPERTS,
    **dict.fromkeys(("gdn2_chunk", "kda_chunk"), FORWARD),
    **dict.fromkeys(("gdn2_chunk_vjp", "kda_chunk_vjp"), BACKWARD),
    **dict.fromkeys(("gdn2_recurrent", "kda_recurrent"), TOKENS),
    **dict.fromkeys(("gdn2_cp", "gdn2_cp_vjp", "kda_cp", "kda_cp_vjp"), RANKS),
}


def cases_of(spec: KernelSpec) -> Iterator[Case]:
    """What a default run judges agreement on, without a card: the corners first, since they are few."""
    yield from spec.corners
    lane = lanes.present().name
    yield from falsify.draw_cases(
        spec, profiles.examples(spec, "agreement", lane, profiles.DEFAULT)
    )


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_default_run_shows_what_is_documented(name: str) -> None:
    """By a drawn case or by a corner."""
    missing = dict(DOCUMENTED[name])
    for case in cases_of(SPECS[name]):
        inputs = build(case, CPU)
        missing = {what: shows for what, shows in missing.items() if not shows(case, inputs)}
        if not missing:
            return
    assert not list(missing)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_default_run_shows_each_layout(name: str) -> None:
    """That the spec allows beyond padded rows, which strategies draw."""
    spec = SPECS[name]
    drawn = falsify.draw_cases(spec, 40) if spec.layouts else []
    shown = {
        (tensor, layouts.choose(spec.allowed_layouts(), case.launch.layout, tensor))
        for case in falsify.find_laid_cases(spec, drawn)
        for tensor in spec.layouts
    }
    assert {(tensor, one) for tensor in spec.layouts for one in spec.layouts[tensor]} <= shown


def test_every_built_in_kernel_is_walked() -> None:
    """So that a new one says what it documents."""
    assert set(DOCUMENTED) == set(SPECS)
