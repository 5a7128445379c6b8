"""What an exhaustive sweep counted: how many results are wrong, in which direction, and how far.

A census is a sum over patterns, so that one of a whole sweep is the sum of its spans'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bitproof.oracles import formats
from bitproof.oracles.formats import Format

FIRST = 8


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """One wrong result: the fp32 input's bit pattern, and the codes got and expected."""

    pattern: int
    got: int
    expected: int


@dataclass(frozen=True, kw_only=True)
class Census:
    """Counts over `tried` inputs; `wrong` is the sum of the five counts that follow it.

    toward_zero, away_from_zero   a number of smaller, of larger magnitude than the right one
    other_sign                    the right magnitude under the other sign, zeros included
    nan_lost, nan_made            a number where a NaN is right, a NaN where a number is right
    largest_ulps                  distance between wrong and right numbers, in representable steps of
                                  the output's format; an infinity is one step beyond the largest
    first                         the wrong results of the lowest bit patterns, at most 8
    """

    tried: int = 0
    wrong: int = 0
    toward_zero: int = 0
    away_from_zero: int = 0
    other_sign: int = 0
    nan_lost: int = 0
    nan_made: int = 0
    largest_ulps: int = 0
    first: tuple[Wrong, ...] = ()

    def __add__(self, later: Census) -> Census:
        """This census and that of patterns which come after its own."""
        return Census(
            tried=self.tried + later.tried,
            wrong=self.wrong + later.wrong,
            toward_zero=self.toward_zero + later.toward_zero,
            away_from_zero=self.away_from_zero + later.away_from_zero,
            other_sign=self.other_sign + later.other_sign,
            nan_lost=self.nan_lost + later.nan_lost,
            nan_made=self.nan_made + later.nan_made,
            largest_ulps=max(self.largest_ulps, later.largest_ulps),
            first=(self.first + later.first)[:FIRST],
        )


def lines(census: Census, fmt: Format) -> list[str]:
    """The census as lines of a report, the counts first, then the first wrong results."""
    told = [f"{census.wrong:,} wrong of {census.tried:,}{_side(census)}"]
    if not census.wrong:
        return told
    counts = {
        "toward zero": census.toward_zero,
        "away from zero": census.away_from_zero,
        "other sign": census.other_sign,
        "NaN lost": census.nan_lost,
        "NaN made": census.nan_made,
    }
    told += [f"  {name:<16}{count:>13,}" for name, count in counts.items()]
    told.append(f"  {'largest distance':<16}{census.largest_ulps:>13,} ulp of {fmt.name}")
    told.append("  first wrong inputs, what came of them and what is right:")
    told += [f"    {_example(wrong, fmt)}" for wrong in census.first]
    return told


def value(pattern: int) -> float:
    """The fp32 value of a bit pattern, exactly."""
    return float(np.array(pattern, dtype=np.uint32).view(np.float32)[()])


def examples(census: Census, fmt: Format) -> list[dict[str, Any]]:
    """The first wrong results as plain JSON values: hexadecimal bits, and decimals as text."""
    return [
        {
            "input": f"0x{wrong.pattern:08x}",
            "value": repr(value(wrong.pattern)),
            "got": _code(wrong.got, fmt),
            "got_value": _decimal(wrong.got, fmt),
            "expected": _code(wrong.expected, fmt),
            "expected_value": _decimal(wrong.expected, fmt),
        }
        for wrong in census.first
    ]


def _example(wrong: Wrong, fmt: Format) -> str:
    got = f"{_code(wrong.got, fmt)} ({_decimal(wrong.got, fmt)})"
    expected = f"{_code(wrong.expected, fmt)} ({_decimal(wrong.expected, fmt)})"
    return f"0x{wrong.pattern:08x} ({value(wrong.pattern)!r})  got {got}  expected {expected}"


def _side(census: Census) -> str:
    if census.wrong and census.wrong == census.toward_zero:
        return ", all toward zero"
    if census.wrong and census.wrong == census.away_from_zero:
        return ", all away from zero"
    return ""


def _code(code: int, fmt: Format) -> str:
    return f"0x{code:0{fmt.storage.itemsize * 2}x}"


def _decimal(code: int, fmt: Format) -> str:
    return repr(float(formats.decode(np.array(code, dtype=fmt.storage), fmt)))
