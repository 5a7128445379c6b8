"""Gates: every kind holds what its name says, heads differ, and extreme rates never meet a zero."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bitproof.harness.errors import UsageError
from bitproof.harness.strategies import floats, packed
from bitproof.harness.strategies.encoding import DTYPES
from bitproof.harness.strategies.gates import BOUNDS, KINDS, Gates, gates
from tests.harness.strategies.drawing import STEADY, smallest

CPU = torch.device("cpu")
LENGTHS = (70, 1, 0, 40)
PLACES = packed.positions(LENGTHS, 3, CPU)


def _built(width=8, heads=2, dtype="bf16", **knobs):
    return Gates(**knobs).build(PLACES, heads, width, dtype)


def test_ordinary_decays_and_gentle_ones_keep_within_their_ranges():
    """From -4 to -2^-8; above -2^-7, with exact zeros."""
    usual, gentle = _built()["g"], _built(kind="gentle")["g"]
    assert bool(((usual <= -(2.0**-8)) & (usual > -4)).all())
    assert bool(((gentle <= 0) & (gentle > -(2.0**-7))).all())
    assert 0.05 < (gentle == 0).float().mean() < 0.2


@pytest.mark.parametrize("bound", BOUNDS)
def test_saturated_decays_are_the_bound_and_its_two_neighbours(bound):
    """All three of them occur."""
    g = _built(kind="saturated", bound=bound)["g"]
    middle = np.float32(floats.number(bound))
    expected = {np.nextafter(middle, np.float32(-9)), middle, np.nextafter(middle, np.float32(0))}
    assert set(g.flatten().tolist()) == {float(value) for value in expected}


@pytest.mark.parametrize("gate", ["log", "bounded"])
def test_saturated_blocks_are_whole_subchunks(gate):
    """16 rows from a sequence's first one on are saturated throughout or hold other values."""
    g = _built(gate=gate, kind="blocks", seed=2)["g"]
    saturated = g == (-5.0 if gate == "log" else 32.0)
    seen = set()
    for start, length in ((0, 70), (71, 40)):
        for first in range(start, start + length, 16):
            block = saturated[first : min(first + 16, start + length)]
            assert bool(block.all()) or not bool(block.any())
            seen.add(bool(block.all()))
    assert seen == {True, False}


@pytest.mark.parametrize(("gate", "top"), [("bounded", 16.0), ("plain", 16.0)])
def test_saturated_raw_values_are_beyond_what_a_sigmoid_tells_from_one(gate, top):
    """1 - sigmoid is below 2^-24 from about 16.6 on; biases take at most one away."""
    found = _built(gate=gate, kind="saturated")
    assert bool((found["g"].float() + found["dt_bias"] > top).all())


def test_edges_are_met_among_ordinary_values():
    """One in four; the largest exponential of fp32 and softplus's change of formula are among them."""
    g = _built(kind="edges", width=64)["g"]
    assert {-60.0, -87.5, -104.0} <= set(g.flatten().tolist())
    assert 0.5 < (g > -4).float().mean() < 0.9
    raw = _built(gate="plain", kind="edges", width=64)["g"]
    assert {20.0, 20.125, 19.875} <= set(raw.float().flatten().tolist())


def test_steps_begin_anew_in_each_sequence():
    """[0, -60, -120] from the first token on."""
    bits = tuple(floats.pattern(value) for value in (0.0, -60.0, -120.0))
    g = _built(kind="steps", bits=bits)["g"][:, 1, 3]
    assert g[68:75].tolist() == [-120.0, 0.0, 0.0, 0.0, -60.0, -120.0, 0.0]


def test_constant_decays_on_both_sides_of_fp32_s_largest_power_are_drawn():
    """15 steps of -5.914 are finite as e^(15 * 5.914), 15 of -5.916 overflow."""
    with np.errstate(over="ignore"):
        for value, finite in ((-5.914, True), (-5.916, False)):
            wanted = (floats.pattern(value),)
            drawn = smallest(gates("log"), lambda g, wanted=wanted: g.bits == wanted)
            g = drawn.build(PLACES, 1, 1, "bf16")["g"][1:16]
            assert bool(np.isfinite(np.exp(-g.double().sum().to(torch.float32).numpy()))) is finite


@given(st.integers(1, 12), st.integers(0, 2**16), st.sampled_from(("usual", "extreme")))
def test_parameters_differ_from_head_to_head(heads, seed, rate):
    """So that a kernel that reads another head's is seen."""
    found = Gates(gate="bounded", rate=rate, seed=seed).build(PLACES[:2], heads, 4, "bf16")
    assert len(set(found["A_log"].tolist())) == heads
    assert len({tuple(row) for row in found["dt_bias"].tolist()}) == heads
    if rate == "usual":
        assert bool(((found["A_log"] >= 0) & (found["A_log"] < 2.75)).all())


def test_extreme_rates_are_infinite_and_tiny_in_fp32():
    """By turns from head to head, the infinite one first."""
    rate = _built(gate="bounded", rate="extreme", heads=4)["A_log"].numpy()
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(rate)).tolist() == [True, False, True, False]
    assert (np.exp(rate[1::2].astype(np.float64)) < 2.0**-126).all()


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("kind", ["usual", "gentle", "edges"])
def test_a_raw_value_and_its_bias_never_add_up_to_zero(kind, dtype):
    """In fp32, as a kernel adds them: zero times an infinite rate would be NaN."""
    found = _built(gate="bounded", kind=kind, dtype=dtype, width=500)
    assert found["g"].dtype == DTYPES[dtype]
    assert bool((found["g"].float() + found["dt_bias"] != 0).all())


def test_gentle_biases_are_the_report_s():
    """From -6.91 to -2.25; the others on both sides of zero."""
    gentle = _built(gate="plain", kind="gentle", width=500)["dt_bias"]
    assert bool(((gentle > -6.91) & (gentle < -2.24)).all())
    usual = _built(gate="plain", width=500)["dt_bias"]
    assert -1 < usual.min() < -0.9
    assert 0.9 < usual.max() < 1


def test_a_log_gate_has_no_parameters_and_an_absent_rate_no_a_log():
    """The bias stays."""
    assert set(_built()) == {"g"}
    assert set(_built(gate="bounded", rate="absent")) == {"g", "dt_bias"}
    assert set(_built(gate="plain")) == {"g", "dt_bias", "A_log"}


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"bound": floats.pattern(0.0)}, "the bound must be below 0, got 0.0"),
        ({"kind": "steps"}, "need patterns in `bits`"),
        ({"bits": (floats.pattern(-1.0),)}, "no other kind does"),
        ({"kind": "steps", "bits": ("-1",)}, "eight hex digits"),
        ({"gate": "plain", "rate": "absent"}, "only a bounded gate has the rate 'absent'"),
    ],
)
def test_a_description_that_makes_no_gate_is_refused(knobs, says):
    """When it is made, not when it is built."""
    with pytest.raises(UsageError, match=says):
        Gates(**knobs)


@pytest.mark.parametrize("gate", ["log", "plain", "bounded"])
def test_every_kind_is_drawn_and_the_simplest_is_ordinary(gate):
    """Shrunk to usual numbers from seed 0 and the bound -5."""
    assert smallest(gates(gate)) == Gates(gate=gate)
    for kind in KINDS:
        found = smallest(gates(gate), lambda drawn, kind=kind: drawn.kind == kind)
        assert (found.kind, found.seed, found.bound) == (kind, 0, BOUNDS[0])


def test_extreme_rates_are_for_bounded_gates():
    """Times a raw value, an infinite rate saturates those; a plain gate's decay would be infinite."""
    assert smallest(gates("bounded"), lambda drawn: drawn.rate == "extreme")

    @settings(STEADY, max_examples=300)
    @given(st.sampled_from(("log", "plain")).flatmap(gates))
    def draw(drawn):
        assert drawn.rate == "usual"

    draw()
