"""Corners of built-in kernels catch edits that drawn cases let live."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import settings

from bitproof.harness import checks, lanes
from bitproof.harness.case import build
from bitproof.harness.outcomes import Outcome
from bitproof.harness.search import falsify
from bitproof.harness.spec import Fault, KernelSpec
from bitproof.harness.subjects.discovery import find
from bitproof.harness.subjects.planting import plant

KERNELS = [found.spec for found in find()]
DERANDOMISED = settings(derandomize=True, database=None)

# (kernel, module, function, what is exchanged, what comes in its place): what each corner is there for.
EDITS = {
    "clamps the head of q and k to 1": (
        "gdn2_recurrent",
        "delta.recurrent",
        "recurrent",
        "+ head // GROUPS)",
        "+ tl.minimum(head // GROUPS, 1))",
    ),
    "clamps the value head to the second of its group": (
        "kda_recurrent",
        "delta.recurrent",
        "recurrent",
        "number = sequence * HEADS + head\n",
        "head = head // GROUPS * GROUPS + tl.minimum(head % GROUPS, 1)\n"
        "    number = sequence * HEADS + head\n",
    ),
    "drops columns of V past 128": (
        "gdn2_recurrent",
        "delta.recurrent",
        "recurrent",
        "inside, inside_v = key < K, column < V",
        "inside, inside_v = key < K, column < (V if V < 128 else 128)",
    ),
    "drops channels of K past 128": (
        "kda_recurrent",
        "delta.recurrent",
        "recurrent",
        "inside, inside_v = key < K, column < V",
        "inside, inside_v = key < (K if K < 128 else 128), column < V",
    ),
    "counts tiles of a group modulo 8": (
        "dsrelu_bf16",
        "dsrelu.gemm",
        "find_tile",
        "start + (number - ends + tiles) * BLOCK_M",
        "start + (number - ends + tiles) % 8 * BLOCK_M",
    ),
    "exchanges the halves of four subtiles": (
        "dsrelu_bf16",
        "dsrelu.gemm",
        "_subtile",
        "part % 2 == 0",
        "part % 2 == 1",
    ),
    "adds the first eight tiles of a group alone": (
        "dsrelu_bf16",
        "dsrelu.reduce",
        "add_slots",
        "(tile < count)[:, None]",
        "((tile < count) & (tile < 8))[:, None]",
    ),
    "takes e8m0's code 0 for zero": (
        "dsrelu_fp8",
        "dsrelu.gemm",
        "_powers",
        "tl.where(code == 0, 2.0**-127, power)",
        "power",
    ),
    "takes e8m0's code 254 for NaN": (
        "dsrelu_fp8",
        "dsrelu.gemm",
        "_powers",
        "code == 255",
        "code >= 254",
    ),
    "leaves out programs past the 32nd": (
        "per_token_group",
        "quantise.groups",
        "tile_of_groups",
        "inside = (number < groups)[:, None]",
        "inside = ((number < groups) & (tl.program_id(0) < 32))[:, None]",
    ),
    "takes the scale of the first eight blocks of a head for all": (
        "kv_store_int8",
        "quantise.kv_store",
        "_store",
        "scale = row * per_head + block",
        "scale = row * per_head + block % 4",
    ),
}


def edited(name: str) -> KernelSpec:
    """The spec with that edit planted."""
    kernel, module, within, old, new = EDITS[name]
    (found,) = find([], [kernel])
    fault = Fault(
        name=name,
        within=within,
        old=old,
        new=new,
        caught_by="agreement",
        module=f"bitproof.kernels.{module}",
    )
    return plant(found, fault)


@pytest.mark.parametrize("name", EDITS)
def test_a_corner_catches_what_drawn_cases_let_live(name: str) -> None:
    """The edit fails on one of the spec's corners, and on none of five drawn cases."""
    spec, lane = edited(name), lanes.present()
    caught = [
        case
        for case in spec.corners
        if checks.run("agreement", spec, build(case, lane.device), lane).outcome.is_defect
    ]
    assert caught
    drawn = dataclasses.replace(spec, corners=(), refusals=(), strided=frozenset())
    result = falsify.search(
        drawn, "agreement", lane, max_examples=5, shrink=False, base=DERANDOMISED
    )
    assert result.outcome is Outcome.PASSED, result.case


@pytest.mark.parametrize("spec", KERNELS, ids=[spec.name for spec in KERNELS])
def test_every_built_in_kernel_has_corners_and_refusals(spec: KernelSpec) -> None:
    """Each search of agreement judges them, those of the property suite too."""
    assert spec.corners
    assert spec.refusals
