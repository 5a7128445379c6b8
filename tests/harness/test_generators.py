"""The bits of a case: compared with a second implementation in Python integers, and with its digests."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitproof.harness import generators

CPU = torch.device("cpu")
DEVICES = [CPU, torch.device("cuda")] if torch.cuda.is_available() else [CPU]
WORD = 1 << 32

# Of `GENERATORS` below, as that second implementation gives them: SHA-256 over little-endian fp32.
DIGESTS = {
    "gaussian": "d4cdfd8dbe141e69f5b8fe9765cfba7cb3535adf6755f15dc6cf8a695aeb6709",
    "log_uniform": "1fec6a90fc0a1403cce4b4d1f99ae8f375650b58738f9c8d610b5c7b0b4fe83a",
    "normal": "2454cb2cf7a592af374ed7b450871d6551c94a36a8301d3bc41cfc997f70252d",
    "uniform": "d0752a1bfe4a2ebc9f45e1721300cf18034bb3567000a47128b07dbecef4355e",
    "words": "efbb5ab1baf7ef063ddef0ce47c1373e55d1f2b0673a0ae3a526ef432f282bad",
}


def _lowbias32(x: int) -> int:
    x %= WORD
    x ^= x >> 16
    x = x * 0x7FEB352D % WORD
    x ^= x >> 15
    x = x * 0x846CA68B % WORD
    return x ^ x >> 16


def _words(seed: int, start: int, count: int) -> list[int]:
    offset = _lowbias32(seed + 0x9E3779B9)
    return [_lowbias32(start + i + offset) for i in range(count)]


def _uniform(word: int) -> bytes:
    return struct.pack("<f", (word // 256 - 2**23) / 2**23)


def _log_uniform(word: int) -> bytes:
    low, high = -10, 9
    exponent = low + (word // 2 % 256) * (high - low + 1) // 256
    value = (1 + (word >> 9) / 2**23) * 2.0**exponent
    return struct.pack("<f", -value if word % 2 else value)


def _quantile(index: int) -> float:
    """Quantile (index + 1/2) / 4096 of the normal distribution, to the nearest multiple of 2^-16."""
    with mpmath.workdps(40):
        value = mpmath.sqrt(2) * mpmath.erfinv((2 * index + 1 - 4096) / mpmath.mpf(4096))
        return int(mpmath.nint(value * 2**16)) / 2**16


def _normal(word: int) -> bytes:
    return struct.pack("<f", QUANTILES[word % 4096])


def _gaussian(word: int) -> bytes:
    place = min(word % 4096, 4094)
    low, high = (Fraction(QUANTILES[index]) for index in (place, place + 1))
    return struct.pack("<f", float(low + (high - low) * Fraction(word >> 12, 1 << 20)))


QUANTILES = [_quantile(index) for index in range(4096)]
GENERATORS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[int], bytes]]] = {
    "gaussian": (generators.gaussian, _gaussian),
    "log_uniform": (lambda words: generators.log_uniform(words, -10, 9), _log_uniform),
    "normal": (generators.normal, _normal),
    "uniform": (generators.uniform, _uniform),
    "words": (generators.words_to_fp32, lambda word: struct.pack("<I", word)),
}


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.cpu().view(torch.int32).numpy().astype("<i4").tobytes()


@pytest.fixture
def unusual_torch() -> Iterator[None]:
    """Torch with other settings than the ones a case is usually built under."""
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    generators._quantiles.cache_clear()
    yield
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_second_implementation_has_the_committed_digest(name: str) -> None:
    """The reference below gives today what it gave when its digests were written down."""
    _, reference = GENERATORS[name]
    found = b"".join(reference(word) for word in _words(7, 1000, 8192))
    assert hashlib.sha256(found).hexdigest() == DIGESTS[name]


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_generators_give_the_committed_bits(name: str, device: torch.device) -> None:
    """Every generator gives the digest's bits, on every device."""
    generate, _ = GENERATORS[name]
    found = _bytes(generate(generators.hash_words(7, 1000, 8192, device)))
    assert hashlib.sha256(found).hexdigest() == DIGESTS[name]


@pytest.mark.usefixtures("unusual_torch")
@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_bits_do_not_depend_on_torch_settings(name: str) -> None:
    """Neither threads nor default dtype and device have a say; large enough to be split."""
    generate, _ = GENERATORS[name]
    whole = _bytes(generate(generators.hash_words(7, 0, 200_000, CPU)))
    part = _bytes(generate(generators.hash_words(7, 1000, 8192, CPU)))
    assert hashlib.sha256(part).hexdigest() == DIGESTS[name]
    assert whole[4000 : 4 * (1000 + 8192)] == part


@given(seed=st.integers(-(2**40), 2**40), start=st.integers(0, 2**33), count=st.integers(0, 40))
def test_hash_is_the_published_one(seed: int, start: int, count: int) -> None:
    """Words equal the reference's for any seed and counter, also past 32 bits."""
    assert generators.hash_words(seed, start, count, CPU).tolist() == _words(seed, start, count)


@given(words=st.lists(st.integers(0, WORD - 1), min_size=1, max_size=40))
def test_generators_equal_the_reference_word_by_word(words: list[int]) -> None:
    """Every generator maps any 32-bit word as the reference does."""
    tensor = torch.tensor(words, dtype=torch.int64)
    for generate, reference in GENERATORS.values():
        assert _bytes(generate(tensor)) == b"".join(reference(word) for word in words)


def test_global_generators_are_left_alone() -> None:
    """Building bits neither reads nor advances torch's or numpy's generator."""
    torch.manual_seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    first = generators.normal(generators.hash_words(3, 0, 100, CPU))
    after = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    torch.manual_seed(2)
    assert torch.equal(first, generators.normal(generators.hash_words(3, 0, 100, CPU)))
    assert torch.equal(before[0], after[0])
    assert before[1] == after[1]


@pytest.mark.parametrize(("low", "high"), [(-126, 127), (-126, -126), (127, 127), (0, 3)])
def test_log_uniform_stays_between_its_exponents(low: int, high: int) -> None:
    """Values of either sign whose exponents fill [low, high] and never leave it."""
    values = generators.log_uniform(generators.hash_words(1, 0, 20_000, CPU), low, high).to(
        torch.float64
    )
    exponents = torch.frexp(values.abs()).exponent - 1
    assert exponents.unique().tolist() == list(range(low, high + 1))
    assert (values < 0).any()
    assert (values > 0).any()


@pytest.mark.parametrize(("low", "high"), [(-127, 0), (0, 128), (3, 2)])
def test_log_uniform_refuses_exponents_outside_fp32(low: int, high: int) -> None:
    """An empty range, or one with subnormals or infinities in it, is an error that names it."""
    with pytest.raises(ValueError, match=f"got {low} and {high}"):
        generators.log_uniform(torch.zeros(1, dtype=torch.int64), low, high)


@given(seed=st.integers(), bound=st.integers(1, 100))
def test_pick_lies_within_its_bound(seed: int, bound: int) -> None:
    """A pick is in [0, bound), and the same for the same seed."""
    assert 0 <= generators.pick(seed, bound) < bound
    assert generators.pick(seed, bound) == generators.pick(seed, bound)


def test_pick_refuses_an_empty_range() -> None:
    """There is nothing to pick from below 1."""
    with pytest.raises(ValueError, match="positive bound, got 0"):
        generators.pick(1, 0)


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(0, 50))
def test_permutation_orders_by_hash(seed: int, count: int) -> None:
    """A permutation sorts the counters by their words, so that no library's shuffle has a say."""
    words = _words(seed, 0, count)
    expected = sorted(range(count), key=lambda i: (words[i], i))
    assert generators.permutation(seed, count, CPU).tolist() == expected


def test_sums_of_gaussians_depend_on_their_order() -> None:
    """Those of 64 values of `normal` do not, which would hide what depends on the order."""
    words = generators.hash_words(1, 0, 1 << 12, CPU).reshape(64, 64)
    orders = {}
    for generate in (generators.normal, generators.gaussian):
        values = generate(words).numpy()
        forwards, backwards = values.cumsum(1)[:, -1], values[:, ::-1].cumsum(1)[:, -1]
        orders[generate] = int((forwards != backwards).sum())
    assert orders[generators.normal] == 0
    assert orders[generators.gaussian] > 16


def test_a_single_number_is_as_dense_as_several() -> None:
    """A stride of two would reach kernels, and compile them anew."""
    assert generators.log_uniform(generators.hash_words(1, 0, 1, CPU), 0, 1).stride() == (1,)
