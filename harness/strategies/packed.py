"""Lengths of packed sequences, often where chunked kernels go wrong: 0, or next to a multiple of a chunk."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from bitproof.harness.strategies import ragged

_KINDS = (*("each", "long") * 4, "alike", "one", "ends", "square", "none")


@cache
@st.composite
def lengths(
    draw: Any, *, sequences: int, most: int, chunk: int = 64, subchunk: int = 16
) -> tuple[int, ...]:
    """The numbers of tokens of 1 to `sequences` sequences, at most `most` (1 or more) in total.

    Covers: one token; a chunk or a sub-chunk, and one token more or less; a chunk and part of a sub-chunk;
    all tokens in one sequence; the same number in each; no tokens at all; empty sequences first, in the
    middle and last; as many sequences as the longest has tokens. About one case in three has a sequence
    longer than a chunk, where `most` allows, often beside empty ones. Shrinks toward one sequence of one
    token.
    """
    count: int = draw(st.integers(1, sequences))
    size = _length(most, chunk, subchunk)
    first: int = draw(size)
    match draw(st.sampled_from(_KINDS)):
        case "alike":
            return (min(first, most // count),) * count
        case "long":
            few = st.integers(1, subchunk)
            others = st.one_of(few, few, st.just(0))
            longest = draw(st.integers(0, count - 1))
            drawn = (chunk + draw(few) if i == longest else draw(others) for i in range(count))
            return _within(most, drawn)
        case "one":
            chosen = draw(st.integers(0, count - 1))
            return tuple(first if i == chosen else 0 for i in range(count))
        case "ends":
            return (0, *_within(most, (draw(size) for _ in range(count - 2))), 0)[:count]
        case "none":
            return (0,) * count
        case "square":
            longest = draw(st.integers(0, count - 1))
            drawn = (count if i == longest else draw(st.integers(0, count)) for i in range(count))
            return _within(most, drawn)
        case _:
            return _within(most, itertools.chain((first,), (draw(size) for _ in range(count - 1))))


def _within(most: int, sizes: Any) -> tuple[int, ...]:
    """The sizes, shortened where their sum would exceed `most`."""
    cut: list[int] = []
    for size in sizes:
        cut.append(min(size, most - sum(cut)))
    return tuple(cut)


@cache
def _length(most: int, chunk: int, subchunk: int) -> st.SearchStrategy[int]:
    whole = (subchunk, chunk, 2 * chunk)
    edges = {edge for size in whole for edge in (size - 1, size, size + 1)}
    edges |= {chunk + 2, chunk + subchunk - 1}
    return st.one_of(
        st.integers(1, min(most, 2 * subchunk)),
        st.integers(1, most),
        st.sampled_from((1, 0, *sorted(edge for edge in edges if edge <= most))),
    )


@cache
def slack(chunk: int = 64, subchunk: int = 16) -> st.SearchStrategy[int]:
    """The number of slack rows, past the last sequence: none, a few, or more than a chunk."""
    return st.sampled_from((0, 0, 2, subchunk + 1, chunk + 1))


def positions(lengths: Sequence[int], slack: int, device: torch.device) -> Tensor:
    """[T + slack] int64: each row's place in its sequence, 0 for the slack rows."""
    runs = [torch.arange(length, device=device) for length in lengths]
    return torch.cat([*runs, torch.zeros(slack, dtype=torch.int64, device=device)])


def features(lengths: Sequence[int], chunk: int = 64, subchunk: int = 16) -> list[str]:
    """What the lengths cover, in words that a run's summary counts."""
    full = [length for length in lengths if length]
    starts = ragged.offsets(lengths)
    cuts = [start for start in starts[1:-1] if 0 < start < starts[-1]]
    empty_between = any(
        length == 0 and any(lengths[:i]) and any(lengths[i:]) for i, length in enumerate(lengths)
    )
    found = {
        "no tokens": not full,
        "an empty sequence first": bool(full) and lengths[0] == 0,
        "an empty sequence last": bool(full) and lengths[-1] == 0,
        "an empty sequence between": empty_between,
        "one token": 1 in full,
        "a whole chunk": any(length % chunk == 0 for length in full),
        "a chunk and one": any(length > chunk and length % chunk == 1 for length in full),
        "a chunk less one": any(length % chunk == chunk - 1 for length in full),
        "a chunk and part of a sub-chunk": any(
            length > chunk and 0 < length % chunk < subchunk for length in full
        ),
        "a whole sub-chunk": any(length % chunk % subchunk == 0 for length in full),
        "a sub-chunk and one": any(length % chunk == subchunk + 1 for length in full),
        "a sub-chunk less one": any(length % chunk == subchunk - 1 for length in full),
        "two or more chunks": any(length > chunk for length in full),
        "several sequences": len(full) > 1,
        "of unequal lengths": len(set(full)) > 1,
        "a cut inside a chunk": any(cut % chunk for cut in cuts),
        "as many sequences as the longest is long": max(lengths) == len(lengths) > 1,
    }
    return [name for name, holds in found.items() if holds]
