"""Tries an elementwise cast on every fp32 bit pattern, as a black box, against the exact oracle.

The oracle is the table of `oracles.breakpoints`. Every breakpoint of the formats in question lies on a
multiple of 4096 or one past it, so that in a *row* of 4096 consecutive patterns the first element has
one right answer and the others share another. A row is judged eight bytes at a time against eight
bytes of its answer, on the device that launched the kernel, and elements are looked at one by one only
in rows that hold a wrong one. The judgement so costs a fraction of reading the inputs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitproof.harness import lanes
from bitproof.harness.case import Launch
from bitproof.harness.errors import SpecError, UsageError
from bitproof.harness.lanes.base import Lane, LaunchFailed
from bitproof.harness.spec import Elementwise, KernelSpec
from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.harness.sweep.census import FIRST, Census, Wrong
from bitproof.oracles import formats
from bitproof.oracles.breakpoints import breakpoints
from bitproof.oracles.formats import Array

ROW = 4096
PATTERNS = 1 << 32
# Rows that hold a wrong element are taken apart this many at a time, which bounds the memory for it.
_BATCH = 4096

Tell = Callable[[int, Census], None]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How much is launched at once, under which configuration, and after how many launches to look."""

    launch: Launch
    chunk: int
    launches: int


# On the card a chunk fills it many times over and a look costs a synchronisation; in the interpreter
# a program costs as much as a hundred thousand elements, and a look costs nothing.
PACES = {
    "cuda": Pace(launch=Launch(block=4096, num_warps=8), chunk=1 << 27, launches=8),
    "interpreter": Pace(launch=Launch(block=1 << 16), chunk=1 << 20, launches=1),
}


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Right codes by row of 4096 patterns: that of the first, and that of the others; [rows] each."""

    first: Array
    rest: Array


def require_elementwise(spec: KernelSpec) -> Elementwise:
    """What `spec` says of its cast.

    Raises UsageError when it declares none, SpecError when there is no table of the one it declares.
    """
    where = f"kernel {spec.name!r} cannot be swept"
    if spec.elementwise is None:
        raise UsageError(f"{where}: its spec declares no `elementwise` cast of fp32")
    try:
        compute_expected(spec.elementwise)
    except ValueError as error:
        raise SpecError(f"{where}: {error}") from error
    return spec.elementwise


@functools.cache
def compute_expected(elementwise: Elementwise) -> Rows:
    """The right codes of all 2^20 rows, in the format's storage type.

    ValueError: a format without a table of breakpoints, or whose answer changes elsewhere than at a
    row's first two elements; a policy that the format does not have.
    """
    fmt = formats.by_name(elementwise.format)
    starts, codes = breakpoints(fmt, mode=elementwise.mode, overflow=elementwise.overflow)
    row, offset = np.divmod(starts.astype(np.int64), ROW)
    if (offset > 1).any():
        raise ValueError(f"the answers of {fmt.name} change within {ROW} patterns; use round_to")
    rows = PATTERNS // ROW
    # A run that starts one past a multiple of 4096 is in force at the first element of the next row.
    first = np.bincount(row + offset, minlength=rows)[:rows].cumsum() - 1
    rest = np.bincount(row, minlength=rows).cumsum() - 1
    return Rows(first=codes[first], rest=codes[rest])


def sweep(
    found: FoundSpec,
    lane: Lane,
    *,
    low: int = 0,
    high: int = PATTERNS,
    pace: Pace | None = None,
    tell: Tell = lambda _position, _census: None,
) -> Census:
    """Census of the kernel on the patterns in [low, high).

    `tell` is called after every look with the next pattern and the census so far.
    Raises UsageError for a range outside [0, 2^32) and for a kernel that is no elementwise cast,
    LaunchFailed from whatever its launcher raises.
    """
    if not 0 <= low < high <= PATTERNS:
        raise UsageError(
            f"no bit patterns in 0x{low:x}:0x{high:x}: give LO < HI within 0:0x100000000"
        )
    census = Census()
    pace = pace or PACES[lanes.family(lane.name)]
    for position, counted in _looks(found.spec, lane, low, high, pace):
        census += counted
        tell(position, census)
    return census


def _looks(
    spec: KernelSpec, lane: Lane, low: int, high: int, pace: Pace
) -> Iterator[tuple[int, Census]]:
    """(next pattern, census since the last look), one synchronisation each."""
    judge = _Judge(spec, lane, pace.launch)
    chunks = _chunks(low, high, pace.chunk)
    while group := list(itertools.islice(chunks, pace.launches)):
        judged = [judge.launch(*chunk) for chunk in group]
        flags = torch.stack([chunk.bad.any() for chunk in judged]).tolist()
        census = Census(tried=group[-1][1] - group[0][0])
        for chunk, flag in zip(judged, flags, strict=True):
            if flag:
                census += judge.count(chunk)
        yield group[-1][1], census


def _chunks(low: int, high: int, chunk: int) -> Iterator[tuple[int, int]]:
    """[low, high) cut at multiples of `chunk`, so that no piece has patterns of both signs."""
    while low < high:
        cut = min(high, (low // chunk + 1) * chunk)
        yield low, cut
        low = cut


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """One launch: its codes [rows, 4096], the right ones [rows] twice, flags [rows] of wrong rows."""

    start: int
    codes: Tensor
    first: Tensor
    rest: Tensor
    bad: Tensor


class _Judge:
    """Launches one kernel on ranges of patterns and judges what comes back, all on the lane's device."""

    def __init__(self, spec: KernelSpec, lane: Lane, launch: Launch) -> None:
        self._spec = spec
        self._lane = lane
        self._params = {"launch": launch}
        self._counter = torch.empty(0, dtype=torch.int32, device=lane.device)
        self._cast = require_elementwise(spec)
        self._fmt = formats.by_name(self._cast.format)
        self._integer = torch.uint8 if self._fmt.storage.itemsize == 1 else torch.int16
        rows = compute_expected(self._cast)
        self._first = self._move(rows.first).view(self._integer)
        self._rest = self._move(rows.rest).view(self._integer)
        self._rest_is_nan = formats.is_nan(rows.rest, self._fmt)
        codes = np.arange(1 << self._fmt.bits).astype(self._fmt.storage)
        self._nan = self._move(formats.is_nan(codes, self._fmt))
        steps = formats.ulp_distance(codes, np.zeros_like(codes), self._fmt)
        self._steps = self._move(steps.astype(np.int32))

    def launch(self, low: int, high: int) -> _Judged:
        """Cast the patterns in [low, high), and those that fill up the first and the last row."""
        begin, end = low // ROW, -(-high // ROW)
        first, rest = self._first[begin:end], self._rest[begin:end]
        codes = self._cast_rows(begin, end)
        self._fill(codes[0, : low - begin * ROW], first[0], rest[0])
        if end * ROW > high:
            tail = slice(high - (end - 1) * ROW, None)
            self._fill(codes[-1, tail], rest[-1], rest[-1])
        heads = codes[:, 0].clone()
        codes[:, 0] = rest
        words = codes.view(torch.int64)
        copies = 8 // self._fmt.storage.itemsize
        word = rest[:, None].expand(-1, copies).contiguous().view(torch.int64)
        bad = (words != word).any(dim=1)
        for start, stop in _stretches(self._rest_is_nan[begin:end]):
            bad[start:stop] = (~self._is_nan(codes[start:stop])).any(dim=1)
        codes[:, 0] = heads
        bad |= (heads != first) & ~(self._is_nan(heads) & self._is_nan(first))
        return _Judged(start=begin * ROW, codes=codes, first=first, rest=rest, bad=bad)

    def _cast_rows(self, begin: int, end: int) -> Tensor:
        """The kernel's codes of the patterns in rows [begin, end), as integers [rows, 4096]."""
        name = self._cast.output
        start = begin * ROW
        start -= PATTERNS if start >= PATTERNS // 2 else 0
        count = (end - begin) * ROW
        patterns = self._make_range(count) + start
        tensors = {self._cast.input: patterns.view(torch.float32)}
        try:
            output = self._lane.launch(self._spec, tensors, self._params).get(name)
        except Exception as error:
            raise LaunchFailed(self._spec.name) from error
        where = f"spec {self._spec.name!r}"
        if output is None:
            raise SpecError(f"{where}: its launcher gives no output {name!r} to sweep")
        if output.shape != (count,) or output.element_size() != self._fmt.storage.itemsize:
            raise SpecError(
                f"{where}: output {name!r} is {output.dtype}{list(output.shape)}, "
                f"not {self._fmt.name}[{count}] as its `elementwise` says"
            )
        return output.contiguous().view(self._integer).view(end - begin, ROW)

    def _make_range(self, count: int) -> Tensor:
        """0, 1, ... as int32 [count], kept: adding to it is several times as fast as counting anew."""
        if self._counter.numel() < count:
            self._counter = torch.arange(count, dtype=torch.int32, device=self._lane.device)
        return self._counter[:count]

    def count(self, judged: _Judged) -> Census:
        """The census of the wrong results in a launch's flagged rows; `tried` stays 0."""
        census = Census()
        for rows in torch.split(judged.bad.nonzero().squeeze(1), _BATCH):
            census += self._count(judged, rows)
        return census

    def _count(self, judged: _Judged, rows: Tensor) -> Census:
        mask = (1 << self._fmt.bits) - 1
        got = judged.codes[rows].to(torch.int32) & mask
        right = judged.rest[rows].to(torch.int32)[:, None].repeat(1, ROW) & mask
        right[:, 0] = judged.first[rows].to(torch.int32) & mask
        places = (got != right).nonzero()
        got, right = got[places[:, 0], places[:, 1]], right[places[:, 0], places[:, 1]]
        wrong = ~(self._nan[got] & self._nan[right])
        places, got, right = places[wrong], got[wrong], right[wrong]
        if not got.numel():
            return Census()
        lost, made = self._nan[right], self._nan[got]
        numbers = ~(lost | made)
        near, far = self._steps[got], self._steps[right]
        sign = self._fmt.sign_bit
        steps = torch.where((got ^ right) & sign != 0, near + far, (near - far).abs())
        counts = torch.stack(
            [
                (numbers & (near < far)).sum(),
                (numbers & (near > far)).sum(),
                (numbers & (near == far)).sum(),
                lost.sum(),
                made.sum(),
                (steps * numbers).max(),
            ]
        )
        toward, away, other, nan_lost, nan_made, largest = counts.tolist()
        patterns = judged.start + rows[places[:FIRST, 0]] * ROW + places[:FIRST, 1]
        return Census(
            wrong=got.numel(),
            toward_zero=toward,
            away_from_zero=away,
            other_sign=other,
            nan_lost=nan_lost,
            nan_made=nan_made,
            largest_ulps=largest,
            first=tuple(
                Wrong(pattern=pattern, got=one, expected=another)
                for pattern, one, another in zip(
                    patterns.tolist(), got[:FIRST].tolist(), right[:FIRST].tolist(), strict=True
                )
            ),
        )

    def _is_nan(self, codes: Tensor) -> Tensor:
        """Which of the codes, integers of the format's width, are a NaN."""
        if self._fmt.specials == "fnuz":
            return codes.eq(self._fmt.sign_bit)
        return (codes & self._fmt.magnitude_mask).gt(self._fmt.infinity or self._fmt.largest_code)

    def _move(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self._lane.device)

    @staticmethod
    def _fill(codes: Tensor, head: Tensor, rest: Tensor) -> None:
        """Put the right answer where only a whole row asked for one."""
        codes[1:] = rest
        codes[:1] = head


def _stretches(flags: Any) -> Iterator[tuple[int, int]]:
    """[start, stop) of each run of True in flags [n]."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
    return zip(edges[0::2].tolist(), edges[1::2].tolist(), strict=True)
