"""Tokens per expert, often where ragged kernels go wrong: 0, and next to a multiple of the tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st


@st.composite
def sizes(draw: Any, *, groups: int, most: int, block: int) -> tuple[int, ...]:
    """The numbers of tokens of 1 to `groups` experts, each 0 to `most`, often near a multiple of `block`.

    Covers: one token; exactly a block, one token more and one less; all tokens to one expert; the same
    number for each; no tokens at all; empty experts first, in the middle and last. Shrinks toward one expert
    with one token.
    """
    count: int = draw(st.integers(1, groups))
    size = _size(most, block)
    first: int = draw(size)
    match draw(st.sampled_from(("each", "each", "each", "alike", "one", "ends", "none"))):
        case "alike":
            return (first,) * count
        case "one":
            chosen = draw(st.integers(0, count - 1))
            return tuple(first if i == chosen else 0 for i in range(count))
        case "ends":
            return (0, *_several(draw, size, count - 2), 0)[:count]
        case "none":
            return (0,) * count
        case _:
            return (first, *_several(draw, size, count - 1))


def _several(draw: Any, size: st.SearchStrategy[int], count: int) -> list[int]:
    return [draw(size) for _ in range(count)]


def _size(most: int, block: int) -> st.SearchStrategy[int]:
    edges = sorted({e for b in (block, 2 * block) for e in (b - 1, b, b + 1) if 0 <= e <= most})
    return st.one_of(st.integers(1, most), st.sampled_from((1, 0, *edges)))


def offsets(tokens: Sequence[int]) -> tuple[int, ...]:
    """[experts + 1] row numbers: where each expert's rows begin, and where the last expert's end."""
    ends = [0]
    for size in tokens:
        ends.append(ends[-1] + size)
    return tuple(ends)


def features(tokens: Sequence[int], block: int) -> list[str]:
    """What the numbers of tokens cover, in words that a run's summary counts."""
    empty = [size == 0 for size in tokens]
    full = [size for size in tokens if size]
    found = {
        "no tokens": not full,
        "empty first": empty[0] and bool(full),
        "empty last": empty[-1] and bool(full),
        "empty between": any(
            empty[i] and any(tokens[:i]) and any(tokens[i:]) for i in range(len(tokens))
        ),
        "one token": 1 in tokens,
        "a whole block": any(size % block == 0 for size in full),
        "a block and one": any(size > block and size % block == 1 for size in full),
        "a block less one": any(size % block == block - 1 for size in full),
        "all to one of several": len(full) == 1 and len(tokens) > 1,
        "of unequal sizes": len(set(full)) > 1,
        "experts not a power of two": len(tokens) & (len(tokens) - 1) != 0,
        "two or more tiles of one": any(size > block for size in full),
    }
    return [name for name, holds in found.items() if holds]
