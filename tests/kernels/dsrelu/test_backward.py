"""The dsReLU backward pass as its callers meet it: modes, workspaces, buffers, and splits from reports."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness import checks, lanes
from bitproof.harness.bits import bits
from bitproof.harness.case import Launch, build
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import falsify
from bitproof.kernels.dsrelu import backward as launching
from bitproof.kernels.dsrelu.arguments import (
    Operands,
    Tiling,
    dbias_slots_shape,
    dprob_slots_shape,
    output_shapes,
)
from bitproof.kernels.dsrelu.backward import backward, backward_into
from bitproof.kernels.dsrelu.cases import DsreluCase
from bitproof.kernels.dsrelu.specs import ATOMIC, BF16, FP8

TILING = Tiling(block_m=16, block_n=16, block_k=16, subtiles=1, num_warps=4)
CASE = DsreluCase(
    tokens=(5, 0, 19),
    slack=2,
    experts=(0, 1, 1),
    weights=2,
    columns=40,
    buffers=True,
    block_m=16,
    seed=3,
    launch=Launch(block=16),
)


def call(function: Callable[[], Any]) -> Any:
    """`function()` on the present lane."""
    spec = dataclasses.replace(BF16, run=lambda tensors, params: function())
    return lanes.present().launch(spec, {}, {})


def given(case: DsreluCase = CASE) -> tuple[Operands, Tensor, Tensor]:
    """Operands of a case, dprob and dbias."""
    tensors = case.tensors(lanes.present().device)
    dprob, dbias = tensors.pop("dprob"), tensors.pop("dbias")
    return Operands(**tensors), dprob, dbias


def run(case: DsreluCase = CASE, **options: Any) -> dict[str, Tensor]:
    """The outputs of one call."""
    return call(lambda: backward(*given(case), tiling=TILING, **options))


def same(first: dict[str, Tensor], other: dict[str, Tensor], *names: str) -> None:
    """The named outputs agree in every bit."""
    for name in names:
        assert torch.equal(bits(first[name]), bits(other[name])), name


def agrees(case: DsreluCase, spec: Any = BF16) -> None:
    """The case passes agreement, memory and reproducibility."""
    for check in ("agreement", "memory", "reproducibility"):
        lane = lanes.present()
        findings = checks.run(check, spec, build(case, lane.device), lane)
        assert findings.outcome in (Outcome.PASSED, Outcome.NOT_DEMONSTRATED), findings.text


@pytest.fixture(autouse=True)
def _flag_restored() -> Iterator[None]:
    """Torch's determinism flag, as it was."""
    was = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    yield
    torch.use_deterministic_algorithms(was, warn_only=warned)


@pytest.mark.parametrize("warn_only", [False, True])
def test_the_mode_follows_torchs_flag_unless_told(
    warn_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is deterministic under the flag, warn-only too; an explicit mode wins, the flag stays."""
    added: list[str] = []
    add = launching._launch_sums
    monkeypatch.setattr(
        launching, "_launch_sums", lambda *given: (added.append("slots"), add(*given))
    )

    def through_slots(**options: Any) -> bool:
        added.clear()
        run(**options)
        return bool(added)

    assert not through_slots()
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    assert through_slots()
    assert not through_slots(deterministic=False)
    same(run(), run(deterministic=True), *run().keys() - {"d_col", "d_row_scale", "d_col_scale"})
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled() is warn_only
    torch.use_deterministic_algorithms(False)
    assert through_slots(deterministic=True)


@pytest.mark.parametrize("quantised", [False, True])
def test_the_mode_changes_no_shape_and_no_type(quantised: bool) -> None:
    """Nor does it change an output that is no sum over tiles."""
    case = dataclasses.replace(CASE, block_m=32, launch=Launch(block=32))
    tiling = dataclasses.replace(TILING, block_m=32, block_n=32)
    found = [
        call(
            lambda m=mode: backward(
                *given(case), quantised=quantised, deterministic=m, tiling=tiling
            )
        )
        for mode in (False, True)
    ]
    described = [{name: (t.shape, t.dtype) for name, t in outputs.items()} for outputs in found]
    assert described[0] == described[1]
    written = {"d_row", "d_srelu", "amax"}
    if quantised:
        written |= {"d_col", "d_row_scale", "d_col_scale"}
    same(*found, *written)


def test_both_modes_add_to_the_callers_buffers() -> None:
    """The tensors that were passed come back, and twice the call adds twice."""
    for mode in (False, True):
        operands, dprob, dbias = given(dataclasses.replace(CASE, buffers=False))
        outputs = call(
            lambda o=operands, p=dprob, b=dbias, m=mode: backward(
                o, p, b, deterministic=m, tiling=TILING
            )
        )
        assert outputs["dprob"] is dprob
        assert outputs["dbias"] is dbias
        once = dprob.clone(), dbias.clone()
        call(
            lambda o=operands, p=dprob, b=dbias, m=mode: backward(
                o, p, b, deterministic=m, tiling=TILING
            )
        )
        # x + x is exact in deterministic mode, where x is added in one piece.
        if mode:
            assert torch.equal(dprob, 2 * once[0])
            assert torch.equal(dbias, 2 * once[1])
        assert not torch.equal(dprob, once[0])


def test_the_low_level_call_is_the_wrapper_bit_for_bit() -> None:
    """With workspaces of any content and the public shapes."""
    operands, dprob, dbias = given()
    m, n, groups = operands.rows, operands.columns, operands.groups
    outputs = {
        name: torch.full(shape, 7, dtype=torch.float32).to(dtype).to(dprob.device)
        for name, (shape, dtype) in output_shapes(m, n, groups, quantised=False).items()
    }
    outputs["amax"].fill_(float("-inf"))
    outputs |= {"dprob": dprob, "dbias": dbias}
    slots = {
        "dprob_slots": torch.full(dprob_slots_shape(m, n, TILING), 1e30, device=dprob.device),
        "dbias_slots": torch.full(
            dbias_slots_shape(m, n, groups, TILING), float("nan"), device=dprob.device
        ),
    }
    call(
        lambda: backward_into(
            operands, outputs, quantised=False, deterministic=True, tiling=TILING, **slots
        )
    )
    same(outputs, run(deterministic=True), "d_row", "d_srelu", "dprob", "dbias", "amax")


def test_slots_are_one_for_each_tile() -> None:
    """384 and 512 columns share the count of slots with tiles of 256, 513 and 768 another; 2 MiB rule."""
    tiling = Tiling(block_m=128, block_n=256)
    counts = [dprob_slots_shape(9, n, tiling)[0] for n in (1, 256, 384, 512, 513, 768, 2048)]
    assert counts == [1, 1, 2, 2, 3, 3, 8]
    assert dbias_slots_shape(65536, 2048, 1, tiling) == (512 + 1, 2048)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dprob_slots": None}, "dprob_slots is missing: pass torch.float32 of shape"),
        ({"dbias_slots": None}, "dbias_slots is missing"),
        (
            {"dprob_slots": torch.empty(1, 26)},
            r"dprob_slots must be torch.float32 of shape \(3, 26",
        ),
        ({"deterministic": False}, "dprob_slots is for deterministic mode"),
        ({"quantised": True}, "d_row must be torch.float8_e4m3fn of shape"),
        ({"outputs": {}}, "d_row is missing"),
    ],
)
def test_the_low_level_call_names_what_does_not_fit(changes: dict[str, Any], message: str) -> None:
    """Missing, surplus and misshapen tensors are refused before anything is launched."""
    operands, dprob, dbias = given()
    m, n, groups = operands.rows, operands.columns, operands.groups
    outputs = {
        name: torch.empty(shape, dtype=dtype)
        for name, (shape, dtype) in output_shapes(m, n, groups, quantised=False).items()
    }
    options: dict[str, Any] = {
        "outputs": outputs | {"dprob": dprob, "dbias": dbias},
        "quantised": False,
        "deterministic": True,
        "tiling": TILING,
        "dprob_slots": torch.empty(dprob_slots_shape(m, n, TILING)),
        "dbias_slots": torch.empty(dbias_slots_shape(m, n, groups, TILING)),
        **changes,
    }
    with pytest.raises(ValueError, match=message):
        backward_into(operands, **options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prob": torch.zeros(3)}, r"prob must be torch.float32 of shape \(26,\), got"),
        ({"offsets": torch.zeros(4, dtype=torch.int64)}, "offsets must be torch.int32"),
        ({"c": torch.zeros(40, 26, dtype=torch.bfloat16).T}, "c must be dense along its last axis"),
        ({"a_scale": torch.zeros(26, 1, dtype=torch.uint8)}, "a must be torch.float8_e4m3fn"),
        ({"b": torch.zeros(0, 40, 16, dtype=torch.bfloat16)}, "b and experts must not be empty"),
    ],
)
def test_operands_name_what_does_not_fit(changes: dict[str, Tensor], message: str) -> None:
    """Shapes and types that contradict each other are refused when they are put together."""
    tensors = CASE.tensors(torch.device("cpu"))
    del tensors["dprob"], tensors["dbias"]
    with pytest.raises(ValueError, match=message):
        Operands(**{**tensors, **changes})


@pytest.mark.parametrize("mode", [False, True])
def test_no_tokens_give_the_documented_shapes(mode: bool) -> None:
    """No launch: empty rows, dbias as it was, amax -inf."""
    case = dataclasses.replace(CASE, tokens=(0, 0), experts=(0, 1), slack=0)
    outputs = run(case, deterministic=mode)
    assert outputs["d_row"].shape == outputs["d_srelu"].shape == (0, 40)
    assert outputs["dprob"].shape == (0,)
    assert torch.equal(outputs["dbias"], given(case)[2])
    assert outputs["amax"].tolist() == [float("-inf")] * 2


@pytest.mark.parametrize("spec", [BF16, FP8, ATOMIC], ids=lambda spec: spec.name)
@pytest.mark.parametrize(
    ("tokens", "experts", "slack"),
    [
        ((162, 0, 177, 46, 0, 83), (0, 1, 2, 3, 4, 5), 9),  # the report's, its largest run cut
        ((5, 0, 3), (0, 1, 2), 0),
        ((4, 4, 4, 4, 4), (0, 1, 2, 3, 4), 0),
        ((7,), (0,), 0),
        ((3, 5, 2), (1, -1, 0), 4),
        ((0, 40, 0), (0, 1, 2), 0),
        ((1, 1, 1), (0, 1, 2), 0),
    ],
    ids=str,
)
def test_splits_from_reports(
    spec: Any, tokens: tuple[int, ...], experts: tuple[int, ...], slack: int
) -> None:
    """Empty experts, buffers longer than the sum, somebody else's rows, all tokens to one expert."""
    agrees(
        DsreluCase(
            tokens=tokens,
            experts=experts,
            slack=slack,
            weights=max(experts) + 1,
            columns=20,
            depth=32,
            small=spec is FP8,
            spread=4,
            buffers=True,
            block_m=64 if sum(tokens) > 99 else 16,
            block_k=32,
            seed=5,
            launch=Launch(block=32),
        ),
        spec,
    )


def test_a_configuration_that_cannot_vary_is_called_so() -> None:
    """Two tiles and zeroed buffers are two contributions, and a + b = b + a."""
    for columns, expected in ((32, Outcome.NOT_DEMONSTRATED), (64, Outcome.PASSED)):
        case = dataclasses.replace(
            CASE, tokens=(32, 32), experts=(0, 1), slack=0, columns=columns, buffers=columns > 32
        )
        spec = dataclasses.replace(BF16, cases=lambda case=case: st.just(case))
        result = falsify.search(spec, "reproducibility", lanes.present(), max_examples=1)
        assert result.outcome is expected, dict(result.counts)
    assert result.counts == {"control varied: dbias": 1, "control varied: dprob": 1}


def test_a_second_call_on_recycled_memory_gives_the_same() -> None:
    """Whatever the first call's workspaces left behind, for the report's splits."""
    first = run(deterministic=True)
    second = run(deterministic=True)
    same(first, second, "d_row", "d_srelu", "dprob", "dbias", "amax")


def test_rows_past_two_to_the_31_elements_are_addressed() -> None:
    """Row 131072 of a stride of 16384 begins where a 32-bit offset has wrapped."""
    rows, stride, last = 131_074, 16_384, 3
    case = dataclasses.replace(CASE, tokens=(last,), experts=(0,), slack=0)
    operands, dprob, dbias = given(case)
    device = dprob.device

    def far(tensor: Tensor) -> Tensor:
        """The rows of `tensor` as the last of many; the memory between them is never touched."""
        wide = torch.empty((rows, stride), dtype=tensor.dtype, device=device)[:, : tensor.shape[1]]
        wide[-last:] = tensor
        return wide

    big = dataclasses.replace(
        operands,
        a=far(operands.a),
        c=far(operands.c),
        prob=torch.cat([torch.zeros(rows - last, device=device), operands.prob]),
        offsets=torch.tensor([0, rows - last, rows], dtype=torch.int32, device=device),
        experts=torch.tensor([-1, 0], dtype=torch.int32, device=device),
    )
    tiling = dataclasses.replace(TILING, block_m=512)
    buffers = torch.zeros(rows, device=device), torch.zeros((2, case.columns), device=device)
    found = call(lambda: backward(big, *buffers, deterministic=True, tiling=tiling))
    near = call(lambda: backward(operands, dprob * 0, dbias * 0, deterministic=True, tiling=tiling))
    tails = {name: found[name][-last:] for name in ("d_row", "d_srelu", "dprob")}
    same(tails, near, *tails)
    assert not found["d_row"][:-last].any()
    assert torch.equal(found["dbias"][1:], near["dbias"])


def test_rows_of_one_tile_may_lie_two_to_the_31_elements_apart() -> None:
    """Row 16 of a stride of 2^27 begins where a 32-bit offset within a tile has wrapped."""
    rows, stride = 18, 2**27 + 1
    operands, dprob, dbias = given(dataclasses.replace(CASE, tokens=(rows,), experts=(0,), slack=0))

    def far(tensor: Tensor) -> Tensor:
        """The same rows; the memory between them is never touched."""
        apart = torch.empty((rows * stride,), dtype=tensor.dtype, device=tensor.device)
        wide = apart.as_strided(tuple(tensor.shape), (stride, 1))
        return wide.copy_(tensor)

    tiling = dataclasses.replace(TILING, block_m=32)
    big = dataclasses.replace(operands, a=far(operands.a), c=far(operands.c))
    found, near = (
        call(lambda o=o: backward(o, dprob * 0, dbias * 0, deterministic=True, tiling=tiling))
        for o in (big, operands)
    )
    same(found, near, "d_row", "d_srelu", "dprob", "dbias")


def test_dense_rows_that_32_bits_cannot_tell_apart_within_a_tile_are_refused() -> None:
    """N or K times the tile's height."""
    operands, dprob, dbias = given(CASE)
    tiling = dataclasses.replace(TILING, block_m=2**30)
    with pytest.raises(ValueError, match="spans 2\\^31 elements or more"):
        call(lambda: backward(operands, dprob, dbias, deterministic=True, tiling=tiling))


KEYS = Path(__file__).with_name("compiled_keys.py")


def compiled(*arguments: str) -> dict[str, int]:
    """How many variants each call of `compiled_keys.py` adds, asked of triton in compiled mode."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "BITPROOF_LANE": "interpreter"}
    environment["PYTHONPATH"] = os.pathsep.join([str(KEYS.parents[3]), *sys.path])
    told = subprocess.run(
        [sys.executable, str(KEYS), *arguments],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    counted: dict[str, int] = json.loads(told.stdout)
    return counted


def test_token_counts_never_add_a_compiled_variant() -> None:
    """n, the number of slots, the mode, types and tiles do; calls of another length do not."""
    assert compiled() == {
        "first": 2,
        "other sizes": 0,
        "a multiple of 16": 0,
        "one token": 0,
        "slack": 0,
        "no tokens": 0,
        "the same split turned": 0,
        "another n with as many slots": 2,
        "another number of slots": 2,
        "another mode": 1,
        "quantised": 1,
        "e4m3 operands": 1,
        "another tile": 2,
        "first again": 0,
        "tokens in default mode": 0,
    }


@pytest.mark.parametrize("fault", ["the product", "the sums"])
def test_a_token_count_in_the_key_is_counted(fault: str) -> None:
    """With a kernel that specialises on it, the same calls add variants."""
    counted = compiled(f"specialises {fault} on the token count")
    assert counted["one token"] == counted["a multiple of 16"] == 1
