"""What strategies shrink toward, and what they may draw."""

from __future__ import annotations

import collections

from hypothesis import given, settings
from hypothesis import strategies as st

from bitproof.harness.case import Launch, Scale
from bitproof.harness.strategies import floats, launches, sizes
from bitproof.harness.strategies.values import CAST_KINDS, QUANTISER_KINDS, Values, values
from tests.strategies.drawing import STEADY, smallest


def test_launches_shrink_to_the_default():
    """Four warps, the first block, aligned, dense."""
    assert smallest(launches.launches((64, 32))) == Launch(block=64)
    padded = smallest(launches.launches((64,), strided=True), lambda launch: launch.row_padding)
    assert padded == Launch(block=64, row_padding=5)


def test_launches_cover_every_number_of_warps():
    """Each with another number of stages and every block, so that few configurations meet them all."""
    seen = set()

    @settings(STEADY, max_examples=200)
    @given(launches.launches((64, 32, 16)))
    def draw(launch):
        seen.add(launch)

    draw()
    assert {launch.num_warps for launch in seen} == {1, 2, 4, 8}
    assert len({launch.num_stages for launch in seen}) == 4
    assert {launch.block for launch in seen} == {64, 32, 16}
    assert {launch.row_padding for launch in seen} == {0}
    assert {bool(launch.misalign) for launch in seen} == {False, True}


def test_values_shrink_to_the_first_kind():
    """Ordinary values for a quantiser, the format's decisions for a cast; seed 0 and nothing else."""
    assert smallest(values("e4m3")) == Values()
    assert smallest(values("e4m3", CAST_KINDS)) == Values(kind="lattice")
    assert {"anchored", "edges"} <= set(QUANTISER_KINDS)


def test_patterns_shrink_to_zero_and_then_to_a_small_grid_value():
    """A value above a midpoint shrinks to the smallest midpoint's neighbour."""
    assert smallest(floats.patterns("e4m3")) == "0x00000000"
    middle = set(floats.midpoints("e4m3").tolist())
    above = smallest(floats.patterns("e4m3"), lambda bits: floats.word(bits) - 1 in middle)
    assert above == "0x3a800001"


def test_lengths_shrink_to_one_step_and_reach_zero_and_the_most():
    """Large ones only where the profile and the lane have the time."""
    assert smallest(sizes.length(40)) == 1
    assert smallest(sizes.length(40, step=2)) == 2
    for length in (0, 1, 40):
        assert smallest(sizes.length(40), lambda drawn, length=length: drawn == length) == length


def test_a_nightly_run_on_a_card_draws_large_lengths():
    """And shrinks them to the smallest that a failure needs."""
    night = Scale(on_card=True, nightly=True)
    assert smallest(sizes.length(40, scale=night), lambda length: length > 100) == 101


@settings(STEADY, max_examples=200)
@given(st.data())
def test_every_drawn_value_can_be_built(data):
    """Values validate themselves, so that a strategy drawing outside the rules would raise."""
    drawn = data.draw(values(data.draw(st.sampled_from(("e4m3", "e2m1", "int8")))))
    assert drawn.bits or drawn.kind not in ("range", "constant")


def test_lengths_meet_the_edges_of_blocks():
    """Whole blocks and one more or less, each often enough to be met under several values."""
    met = collections.Counter()

    @settings(STEADY, max_examples=400)
    @given(sizes.length(2100, block=128))
    def draw(length):
        if length > 1:
            met[length % 128] += 1

    draw()
    assert min(met[0], met[1], met[127]) >= 8
    assert smallest(sizes.length(2100, block=128)) == 1
