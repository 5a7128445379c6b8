"""A rounding of fp32 as a table: where, along the 2^32 bit patterns, the answer changes.

An exhaustive sweep needs the answer for every pattern. Rounding is monotone, so that the answers
form a few hundred runs (a hundred thousand for a 16-bit format), and a table of where they start is
the whole answer: cheap to send to a GPU and to search there. It is derived from the format's values
and the midpoints between them, without rounding an input, and so is a third opinion beside the two
of `oracles.rounding`.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bitproof.oracles.formats import Array, Floats, Format, bits, decode
from bitproof.oracles.rounding import Mode, Overflow, require_policy, require_subnormals

_INFINITY: Final = 0x7F800000
_NEGATIVE: Final = 0x80000000


def breakpoints(
    fmt: Format, *, mode: Mode = "rne", overflow: Overflow = "saturate"
) -> tuple[npt.NDArray[np.uint32], Array]:
    """(starts, codes): a pattern `u` rounds to `codes[searchsorted(starts, u, "right") - 1]`.

    starts [n] uint32, ascending from 0; codes [n] in the storage type of `fmt`; neighbouring codes
    differ. Modes and overflow policies are those of `round_to`. NaN patterns form runs that hold
    the canonical NaN of their sign; for a format without NaN they hold all ones, which is no code
    there, since those formats have fewer than 8 bits.

    ValueError: fp32, where every pattern would be a run; e8m0, which has no zero to start from; a
    policy that the format does not have; subnormals flushed in this process.
    """
    if fmt.mantissa_bits >= 23 or fmt.specials == "exponent":
        raise ValueError(f"there is no table of breakpoints for {fmt.name}; use round_to")
    require_policy(fmt, mode, overflow)
    require_subnormals()
    codes = np.arange(fmt.largest_code + 1, dtype=np.uint64)
    starts = np.concatenate([[0], _thresholds(decode(codes, fmt), mode)])
    if overflow == "saturate":
        starts = starts[:-1]
    else:
        beyond: Any = fmt.infinity if overflow == "inf" else fmt.nan
        codes = np.append(codes, beyond)
    starts = np.append(starts, _INFINITY + 1)
    no_number = np.iinfo(fmt.storage).max if fmt.nan is None else fmt.nan
    codes = np.append(codes, no_number).astype(fmt.storage)

    negative = codes | fmt.storage.type(fmt.sign_bit)
    if fmt.specials == "fnuz":
        negative[0] = 0
    starts = np.concatenate([starts, starts + _NEGATIVE])
    codes = np.concatenate([codes, negative])
    first = np.append(True, codes[1:] != codes[:-1])
    return starts[first].astype(np.uint32), codes[first]


def _thresholds(values: Floats, mode: Mode) -> npt.NDArray[np.int64]:
    """The first pattern that leaves each of the values [n], ascending from 0, for the next one up.

    The last one leaves the largest value for the overflow.
    """
    if mode == "rz":
        return np.append(_patterns(values[1:]), _INFINITY)
    beyond = 2.0 * values[-1] - values[-2]
    following = np.append(values[1:], beyond)
    first = _patterns((values + following) * 0.5)
    if mode == "rne":
        # The midpoint itself stays with the lower value where that has the even code.
        first[0::2] += 1
    return first


def _patterns(values: Floats) -> npt.NDArray[np.int64]:
    narrow = values.astype(np.float32)
    if not np.array_equal(narrow, values):
        raise ValueError("a breakpoint of this format is not an fp32 value; use round_to")
    return bits(narrow).astype(np.int64)
