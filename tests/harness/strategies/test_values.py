"""`Values`: every kind holds what its name says, and 16-bit inputs are cut from the same bits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from bitproof.harness.errors import UsageError
from bitproof.harness.strategies import floats
from bitproof.harness.strategies.content import content, widen
from bitproof.harness.strategies.encoding import DTYPES, encode
from bitproof.harness.strategies.values import Patch, Values

CPU = torch.device("cpu")


def _words(values, shape=(4, 96), dtype="fp32", run=32):
    return widen(values.build(shape, CPU, dtype=dtype, run=run))


def test_a_case_s_text_is_eight_hex_digits():
    """Both ways; anything else is one sentence."""
    assert floats.pattern(1.0) == "0x3f800000"
    assert floats.word("0xffffffff") == 0xFFFFFFFF
    for text in ("3f800000", "0x3F800000", "0x3f8", "0x1ffffffff", "one"):
        with pytest.raises(UsageError, match="eight hex digits"):
            floats.word(text)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"exponent": 111}, "exponent"),
        ({"kind": "constant"}, "need at least one pattern"),
        ({"bits": ("1.0",)}, "eight hex digits"),
        ({"patches": (Patch(index=0, bits="nan"),)}, "eight hex digits"),
    ],
)
def test_a_description_that_builds_nothing_is_refused(changes, says):
    """When it is made, not when it is built."""
    with pytest.raises(UsageError, match=says):
        Values(**changes)


def test_the_lattice_is_every_decision_and_its_neighbours():
    """With enough elements every grid value, midpoint and neighbour of e4m3 occurs, of both signs."""
    words = _words(Values(kind="lattice"), shape=(1 << 16,))
    expected = set()
    for value in np.concatenate([np.arange(0, 16) * 2.0**-10, _normals()]):
        word = int(np.float32(value).view(np.uint32))
        expected |= {word, word + 1, max(word - 1, 0)}
    assert set((words & 0x7FFFFFFF).tolist()) == expected
    assert 0.4 < (words >> 31).mean() < 0.6


def _normals():
    """e4m3's normal values and midpoints: 17ths of the sixteen binades, up to the tie at 464."""
    steps = np.arange(16, 32) * 2.0**-4
    values = np.concatenate([steps * 2.0**exponent for exponent in range(-6, 9)])
    return values[values <= 464]


def test_the_lattice_is_measured_in_its_unit():
    """Every element times the unit, rounded once."""
    plain = Values(kind="lattice", seed=3)
    unit = dataclasses.replace(plain, unit=floats.pattern(0.3))
    expected = plain.build((500,), CPU) * torch.tensor(0.3)
    assert torch.equal(unit.build((500,), CPU), expected)


@pytest.mark.parametrize("target", ["e4m3", "e2m1", "int8"])
def test_anchored_blocks_have_their_largest_value_at_the_format_s(target):
    """amax / largest is a scale in which most elements are midpoints or their neighbours."""
    x = Values(kind="anchored", seed=9, target=target).build((8, 128), CPU, run=32)
    blocks = x.reshape(8, 4, 32).abs().double()
    largest = {"e4m3": 448.0, "e2m1": 6.0, "int8": 127.0}[target]
    scale = blocks.amax(dim=-1, keepdim=True) / largest
    middle = torch.from_numpy(floats.midpoints(target).astype(np.int32)).view(torch.float32)
    places = torch.cat([middle.double(), torch.tensor([largest])])
    ratio = blocks / scale
    # A neighbour, the product's rounding and the scale's: under four halves of an ulp.
    off = (ratio[..., None] - places).abs().amin(dim=-1)
    assert bool((off <= ratio * 2.0**-22).all())
    assert len(set(torch.frexp(scale.flatten()).mantissa.tolist())) > 8


def test_edges_fix_amax_at_or_beside_a_power_of_two_times_the_largest():
    """Three places for the one, at most half of it for the others."""
    blocks = Values(kind="edges", seed=1).build((64, 64), CPU, run=32).reshape(-1, 32).abs()
    top, second = blocks.topk(2, dim=-1).values.unbind(dim=-1)
    mantissa = top.view(torch.int32) & 0x7FFFFF
    wanted = {0x600000 + step for step in (-1, 0, 1)} | {0, 1, 0x7FFFFF}
    assert set(mantissa.tolist()) == wanted
    assert bool((second <= top * 0.5000001).all())


def test_ranges_are_consecutive_patterns_of_the_input_s_type():
    """fp32 one by one, bf16 and fp16 one of theirs by one of theirs, past the last to the first."""
    start = Values(kind="range", bits=("0xfffffffe",))
    assert _words(start, (4,)).tolist() == [0xFFFFFFFE, 0xFFFFFFFF, 0, 1]
    for dtype in ("bf16", "fp16"):
        x = Values(kind="range", bits=("0x3f800000",)).build((300,), CPU, dtype=dtype)
        pattern = x.view(torch.int16)
        assert torch.equal(pattern, pattern[0] + torch.arange(300, dtype=torch.int16))


def test_other_kinds_hold_what_they_say():
    """Subnormals are subnormal, a constant constant, explicit bits repeat, specials are all there."""
    assert (_words(Values(kind="subnormal")) & 0x7F800000 == 0).all()
    assert (_words(Values(kind="constant", bits=("0xffc00001",))) == 0xFFC00001).all()
    explicit = Values(kind="explicit", bits=("0x00000001", "0x80000000"))
    assert _words(explicit, (1, 5)).tolist() == [[1, 0x80000000, 1, 0x80000000, 1]]
    special = _words(Values(kind="special"), (1 << 14,))
    assert set(floats.SPECIALS.values()) <= set(special.tolist())
    log = np.abs(Values(kind="log", exponent=-30).build((4096,), CPU).numpy())
    assert log.min() < 2.0**-44
    assert log.max() > 2.0**-16
    assert np.abs(Values(kind="uniform", exponent=4).build((999,), CPU).numpy()).max() <= 16


def test_a_blank_block_is_zeros_that_keep_their_signs():
    """Whole blocks of a row, about half of them, the others as they were."""
    plain = _words(Values(seed=4), (16, 100))
    blank = _words(Values(seed=4, blank=True), (16, 100))
    starts = np.arange(0, 100, 32)
    zero = np.maximum.reduceat(blank & 0x7FFFFFFF, starts, axis=1) == 0
    assert 0.25 < zero.mean() < 0.75
    kept = np.repeat(~zero, np.diff([*starts, 100]), axis=1)
    assert (blank[kept] == plain[kept]).all()
    assert (blank[~kept] == plain[~kept] & 0x80000000).all()


def test_patches_come_last():
    """Modulo the size, over whatever the kind says."""
    values = Values(
        kind="constant",
        bits=("0x3f800000",),
        blank=True,
        patches=(Patch(index=13, bits="0x7fc00000"),),
    )
    words = _words(values, (2, 5))
    assert words[0, 3] == 0x7FC00000
    assert ((words & 0x7FFFFFFF).reshape(-1)[[0, 1, 2, 4, 5, 6, 7, 8, 9]] != 0x7FC00000).all()


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_sixteen_bits_are_a_truncation_that_keeps_what_it_can(dtype):
    """A pattern of the type stays, NaN stays NaN, and the rest is the next value toward zero.

    torch widens; the largest finite value stands for whatever fp32 has beyond it.
    """
    own = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(DTYPES[dtype])
    assert torch.equal(
        encode(torch.from_numpy(widen(own)), dtype).view(torch.int16), own.view(torch.int16)
    )
    words = torch.from_numpy(_words(Values(kind="bits", seed=8), (1 << 16,)))
    x = encode(words, "fp32")
    short = encode(words, dtype)
    number = ~torch.isnan(x)
    assert torch.equal(torch.isnan(short), ~number)
    x, short = x[number].double(), short[number]
    assert torch.equal(torch.signbit(short), torch.signbit(x))
    magnitude = short.view(torch.int16) & 0x7FFF
    infinite = torch.isinf(short)
    assert torch.equal(infinite, torch.isinf(x))
    beyond = (magnitude[~infinite] + 1).view(DTYPES[dtype]).double()
    finite = x[~infinite].abs()
    assert bool((short[~infinite].double().abs() <= finite).all())
    assert bool((beyond > finite).logical_or(torch.isinf(beyond)).all())


def test_content_names_what_is_there():
    """Of any input type, by its bits."""
    words = [floats.word(floats.pattern(value)) for value in (1.0, 1.0625, 465.0, -0.0, 1e-40)]
    x = encode(torch.tensor([*words, 0x7F800001, 0xFF800000, 0x3F880001]), "fp32")
    everything = content(x, "e4m3")
    assert everything == [
        *("nan", "inf", "negative zero", "subnormal", "midpoint"),
        *("just above a midpoint", "saturates"),
    ]
    assert content(x[:1], "e4m3") == []
    assert content(encode(torch.tensor([floats.word("0x3f880000")]), "bf16"), "e4m3") == [
        "midpoint"
    ]


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (1,), (2, 3, 70)])
@pytest.mark.parametrize("kind", ["normal", "anchored", "edges", "special", "range", "explicit"])
def test_any_shape_can_be_built(shape, kind):
    """Empty ones too, with blanks and patches."""
    patches = (Patch(index=7, bits="0x7fc00000"),)
    values = Values(kind=kind, bits=("0x3f800000",), blank=True, patches=patches)
    assert values.build(shape, CPU, dtype="fp16").shape == shape
