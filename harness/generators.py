"""Bits from a counter: input tensors out of integer arithmetic alone, the same on every device.

Every generator is a function of a seed and of the element's index. The hash is the 32-bit finaliser
"lowbias32" (C. Wellons, hash-prospector, 2018). It is evaluated on int64 words that never overflow, so that
no device's rules for signed arithmetic or shifts matter. Values that look normal come from a fixed table of
quantiles; no libm and no library generator is used.
"""

from __future__ import annotations

import functools
import statistics

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_QUANTILES = 4096


def hash_words(seed: int, start: int, count: int, device: torch.device) -> Tensor:
    """`count` hashed 32-bit words for counters `start`, `start + 1`, ...: int64 in [0, 2^32)."""
    first = start + _mix_int(seed)
    return _mix(torch.arange(first, first + count, dtype=torch.int64, device=device))


def _mix(x: Tensor) -> Tensor:
    """The hash of each word, in place: every large input goes through here."""
    x &= _MASK
    x ^= x >> 16
    x *= 0x7FEB352D
    x &= _MASK
    x ^= x >> 15
    # The published multiplier 0x846CA68B less 2^32: the same low word, and the product fits an int64.
    x *= 0x846CA68B - (1 << 32)
    x &= _MASK
    x ^= x >> 16
    return x


def _mix_int(x: int) -> int:
    """The same hash on one Python integer, used to spread seeds far apart."""
    x = (x + 0x9E3779B9) & _MASK
    x = (x ^ (x >> 16)) * 0x7FEB352D & _MASK
    x = (x ^ (x >> 15)) * 0x846CA68B & _MASK
    return x ^ (x >> 16)


def pick(seed: int, bound: int) -> int:
    """One hashed integer in [0, bound); ValueError for a bound that is not positive."""
    if bound <= 0:
        raise ValueError(f"pick needs a positive bound, got {bound}")
    return _mix_int(_mix_int(seed) ^ 0x5BD1E995) % bound


def words_to_fp32(words: Tensor) -> Tensor:
    """int64 words in [0, 2^32) reinterpreted as fp32 bit patterns."""
    # The low half of each word comes first in memory. A conversion to int32 is undefined beyond its range.
    low = words.contiguous().view(torch.int32)[..., ::2]
    # Not .contiguous(), which leaves a single element its stride of two.
    return low.clone(memory_format=torch.contiguous_format).view(torch.float32)


def uniform(words: Tensor) -> Tensor:
    """Hashed words to fp32 multiples of 2^-23 in [-1, 1): exact in every arithmetic."""
    return ((words >> 8) - (1 << 23)).to(torch.float32) * 2.0**-23


def log_uniform(words: Tensor, low: int, high: int) -> Tensor:
    """Hashed words to fp32 of either sign with exponents uniform in [low, high], mantissa uniform.

    ValueError unless -126 <= low <= high <= 127.
    """
    if not -126 <= low <= high <= 127:
        raise ValueError(f"log_uniform needs -126 <= low <= high <= 127, got {low} and {high}")
    sign = (words & 1) << 31
    exponent = ((words >> 1 & 0xFF) * (high - low + 1) >> 8) + low + 127
    return words_to_fp32(sign | exponent << 23 | words >> 9)


def normal(words: Tensor) -> Tensor:
    """Hashed words to fp32 that look standard normal: a table of 4096 quantiles, signed.

    All are multiples of 2^-16 below 4, so that fp32 adds up to 64 of them exactly in any order: that hides
    what depends on the order. `gaussian` is for everything that adds or multiplies.
    """
    table = _quantiles().to(words.device)
    return table[words & (_QUANTILES - 1)]


def gaussian(words: Tensor) -> Tensor:
    """Hashed words to fp32 that look standard normal and have full mantissas, so that their sums are rounded.

    They lie between neighbouring quantiles of `normal`'s table, uniformly; an integer is rounded once.
    """
    table = (_quantiles() * 2.0**16).to(torch.int64).to(words.device)
    place = (words & (_QUANTILES - 1)).clamp(max=_QUANTILES - 2)
    low, step = table[place], table[place + 1] - table[place]
    exact = (low << 20) + step * (words >> 12)
    # Below 2^53, so that the conversion to float64 is exact and the one to fp32 is the only rounding.
    return (exact.to(torch.float64) * 2.0**-36).to(torch.float32)


@functools.cache
def _quantiles() -> Tensor:
    """Midpoint quantiles of N(0, 1), rounded to multiples of 2^-16 so that libm's last bits vanish."""
    gauss = statistics.NormalDist()
    steps = [round(gauss.inv_cdf((i + 0.5) / _QUANTILES) * 2**16) for i in range(_QUANTILES)]
    return torch.tensor(steps, dtype=torch.float32, device="cpu") * 2.0**-16


def permutation(seed: int, count: int, device: torch.device) -> Tensor:
    """A permutation of range(count) as int64, decided by the hash alone; ties keep the order of indices."""
    return torch.argsort(hash_words(seed, 0, count, device), stable=True)
