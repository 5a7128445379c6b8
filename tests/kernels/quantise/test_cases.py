"""What the strategies of the quantising kernels reach, and what their failures shrink to."""

from __future__ import annotations

import collections

import pytest
from hypothesis import given, settings

from bitproof.harness import lanes
from bitproof.harness.search import falsify, profiles
from bitproof.harness.strategies import floats
from bitproof.harness.subjects.discovery import find
from bitproof.harness.subjects.planting import plant
from bitproof.kernels.quantise.cases import CastCase, MatrixCase
from bitproof.kernels.quantise.cases_kv_store import StoreCase
from tests.harness.strategies.drawing import STEADY

FOUND = {found.spec.name: found for found in find(["bitproof.kernels.quantise.specs"])}

EVERY = {
    *("fp32", "bf16", "fp16", "1 warps", "2 warps", "4 warps", "8 warps", "misaligned", "tail"),
    *("nan", "inf", "negative zero", "subnormal", "midpoint", "just above a midpoint", "saturates"),
}
OF_MATRICES = {
    *("strided", "two or more groups", "two or more rows", "no rows", "no columns"),
    *("zero rows", "zero groups", "zero beside others", "tiny groups", "constant"),
}
REACHED = {
    CastCase: EVERY
    | {"several programs", "whole blocks", "empty", "lattice", "special", "bits", "range"},
    StoreCase: EVERY
    | {"strided", "two or more blocks", "two or more heads", "shuffled slots", "skipped tokens"}
    | {"no tokens", "anchored", "edges"},
    MatrixCase: EVERY | OF_MATRICES | {"anchored", "edges"},
}
STATIC = EVERY | OF_MATRICES | {"lattice", "a power of two for scale", "no power of two for scale"}


@pytest.mark.parametrize("name", sorted(FOUND))
def test_a_default_run_reaches_every_kind_of_input(name):
    """Each is met in the 400 examples that the interpreter lane spends on agreement."""
    spec = FOUND[name].spec
    met: collections.Counter[str] = collections.Counter()

    @settings(STEADY, max_examples=400)
    @given(spec.cases())
    def draw(case):
        met.update(set(case.features()))

    draw()
    missing = {feature for feature in REACHED.get(spec.case, STATIC) if not met[feature]}
    assert missing == set()


def _smallest(name, fault_name, **wanted):
    """The case that a planted fault's search ends with."""
    found = FOUND[name]
    fault = next(fault for fault in found.spec.faults if fault.name == fault_name)
    result = falsify.search(
        plant(found, fault),
        fault.caught_by,
        lanes.present(),
        max_examples=profiles.examples(
            found.spec, fault.caught_by, "interpreter", profiles.DEFAULT
        ),
        base=settings(derandomize=True, database=None),
    )
    assert result.case is not None
    return result.case, result.findings.findings[0]


def test_the_double_rounding_shrinks_to_one_value_just_above_a_midpoint():
    """Shown as its bits, and reported as an error toward zero."""
    case, finding = _smallest("cast_e4m3", "rounds twice, first toward zero to fp16")
    assert (case.count, case.dtype, case.values.kind) == (1, "fp32", "explicit")
    (bits,) = case.values.bits
    magnitude = floats.word(bits) & 0x7FFFFFFF
    below = floats.midpoints("e4m3")[floats.midpoints("e4m3") < magnitude].max()
    # Within what the truncation to fp16's 10 bits of mantissa takes away, 13 bits of fp32's 23.
    assert 0 < magnitude - below < 1 << 13
    assert finding.facts["direction"] == "all toward zero"


@pytest.mark.parametrize(
    ("name", "fault", "columns"),
    [
        pytest.param("per_token_group", "multiplies by the reciprocal", 2, marks=pytest.mark.slow),
        ("ue8m0_group", "takes ceil(log2()) in fp32", 1),
        ("e2m1_group", "rounds ties away from zero", 4),
    ],
)
def test_a_group_shrinks_to_the_elements_that_decide(name, fault, columns):
    """The offending element (for packed codes its neighbour too) and its group's amax, as bits."""
    case, _ = _smallest(name, fault)
    assert (case.rows, case.values.kind) == (1, "explicit")
    assert case.columns <= columns


def test_a_store_shrinks_to_one_token_and_the_elements_that_decide():
    """The tie and its block's amax, in a cache of one slot."""
    case, _ = _smallest("kv_store_int8", "rounds half to even")
    assert (case.tokens, case.heads, case.slots, case.values.kind) == (1, 1, 1, "explicit")
    assert case.dim <= 2


def test_a_tail_shrinks_to_an_ordinary_row():
    """One element beyond a group, seed 0, normal values: nothing about the numbers matters."""
    case, _ = _smallest("per_token_group", "does not mask the tail of a row")
    assert case.values == MatrixCase().values
    assert (case.rows, case.launch) == (1, MatrixCase().launch)
