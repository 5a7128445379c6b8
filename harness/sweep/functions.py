"""The errors of every elementary function and conversion of Triton, on one lane.

A function of one fp32 argument can be tried on all of its 2^32 arguments; what has more arguments, or one of
fp64, is tried on a fixed hashed sample, which is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bitproof.harness.generators import hash_words, words_to_fp32
from bitproof.harness.lanes.base import Lane, LaunchFailed
from bitproof.harness.spec import KernelSpec, Params, Tensors
from bitproof.harness.sweep.errors import Errors, Tally
from bitproof.harness.sweep.sweep import PATTERNS, ROW
from bitproof.oracles.elementary import FUNCTIONS
from bitproof.oracles.formats import BF16, E4M3, E5M2, FP16, FP32

TYPES = {
    "fp64": torch.float64,
    **{fmt.name: fmt.torch_dtype for fmt in (FP32, BF16, FP16, E4M3, E5M2) if fmt.torch_dtype},
}
# How many elements are launched at once: on a card they fill it many times over.
CHUNKS = {"cuda": 1 << 26, "cpu": 1 << 20}
SAMPLE = 1 << 22

Chunks = Iterator[tuple[Tensor, ...]]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: its name, the types of its operands and of its result, and what is right.

    `exact` is a function of the operands in float64; `rounding` is the conversion's, None for a function.
    """

    name: str
    operands: tuple[str, ...]
    result: str
    exact: Callable[..., Tensor]
    converts: bool = False
    rounding: str | None = None

    @property
    def small(self) -> bool:
        """Whether there are few enough inputs to try all, always."""
        return all(TYPES[name].itemsize <= 2 for name in self.operands)

    @property
    def single(self) -> bool:
        """Whether its only input is one fp32 number."""
        return self.operands == ("fp32",)


def list_rows() -> tuple[Row, ...]:
    """Every row: functions in the order of `FUNCTIONS`, then conversions by their source."""
    rows = [
        Row(name=name, operands=("fp32",) * count, result="fp32", exact=function)
        for name, (count, function) in FUNCTIONS.items()
    ]
    for source in TYPES:
        for target in TYPES:
            narrower = torch.finfo(TYPES[target]).bits < torch.finfo(TYPES[source]).bits
            for rounding in (None, "rtz") if narrower else (None,):
                if source != target:
                    rows.append(_conversion(source, target, rounding))
    return tuple(rows)


def _conversion(source: str, target: str, rounding: str | None) -> Row:
    mode = f", {rounding}" if rounding else ""
    return Row(
        name=f"{source} to {target}{mode}",
        operands=(source,),
        result=target,
        exact=lambda x: x,
        converts=True,
        rounding=rounding,
    )


def describe_inputs(row: Row, *, exhaustive: bool) -> str:
    """Which inputs `measure` tries, in words."""
    if row.small or (row.single and exhaustive):
        return "all"
    if row.single:
        return "4 of every 4,096"
    return f"{SAMPLE:,} hashed"


def measure(
    row: Row,
    lane: Lane,
    *,
    exhaustive: bool = False,
    limit: int | None = None,
    tell: Callable[[int], None] = lambda _done: None,
) -> Errors:
    """The errors of one row; with `limit`, a power of two, those of its first inputs alone.

    `tell` is called with the number of inputs that are done. Raises LaunchFailed from what the compiler or
    the launch raises.
    """
    tally, done = Tally(TYPES[row.result]), 0
    for operands in _draw(row, lane.device, exhaustive):
        if limit is not None:
            operands = tuple(operand[: limit - done] for operand in operands)
        got = evaluate(row, lane, operands)
        tally.add(got, row.exact(*(operand.double() for operand in operands)), operands)
        done += got.numel()
        tell(done)
        if limit is not None and done >= limit:
            break
    return tally.errors()


def evaluate(row: Row, lane: Lane, operands: tuple[Tensor, ...]) -> Tensor:
    """What `lane` makes of operands [n], n a power of two: [n] of the row's type. Raises LaunchFailed."""
    from bitproof.harness.lanes import functions  # needs a lane that was chosen

    def run(_tensors: Tensors, _params: Params) -> dict[str, Tensor]:
        if row.converts:
            return {"out": functions.convert(operands[0], TYPES[row.result], row.rounding)}
        return {"out": functions.apply(row.name, operands)}

    try:
        return lane.launch(KernelSpec(name=row.name, run=run), {}, {})["out"]
    except Exception as error:
        raise LaunchFailed(row.name) from error


def count_inputs(row: Row, *, exhaustive: bool) -> int:
    """How many inputs `measure` tries."""
    if row.small:
        return 1 << 8 * TYPES[row.operands[0]].itemsize
    if row.single:
        return PATTERNS if exhaustive else 4 * (PATTERNS // ROW)
    return SAMPLE


def _draw(row: Row, device: torch.device, exhaustive: bool) -> Chunks:
    """The operands of a row, a chunk at a time, in the order of their patterns where there is one."""
    chunk = min(CHUNKS[device.type], count_inputs(row, exhaustive=exhaustive))
    for start in range(0, count_inputs(row, exhaustive=exhaustive), chunk):
        if row.small:
            dtype = TYPES[row.operands[0]]
            codes = torch.arange(start, start + chunk, device=device)
            yield (codes.to({1: torch.uint8, 2: torch.int16}[dtype.itemsize]).view(dtype),)
        elif row.single and exhaustive:
            words = torch.arange(start, start + chunk, device=device)
            yield (words_to_fp32(words),)
        elif row.single:
            yield (words_to_fp32(_around_rows(start, chunk, device)),)
        elif row.operands == ("fp64",):
            yield (_doubles(start, chunk, device),)
        else:
            yield _together(start, chunk, device)[: len(row.operands)]


def _around_rows(start: int, count: int, device: torch.device) -> Tensor:
    """Of each row of 4096 patterns the first two, one that is hashed, and the last: int64 [count]."""
    rows = torch.arange(start // 4, (start + count) // 4, device=device) * ROW
    inner = hash_words(1, start // 4, count // 4, device) % (ROW - 3) + 2
    return torch.stack([rows, rows + 1, rows + inner, rows + ROW - 1], dim=1).flatten()


def _doubles(start: int, count: int, device: torch.device) -> Tensor:
    """fp64 patterns in turns: any, near 1, beside the ties of fp32, beside those of fp16 and bf16."""
    high, low = (hash_words(seed, start, count, device) for seed in (2, 3))
    words = (high << 32) | low
    exponent = 1023 - 40 + (high >> 20) % 80
    usual = (words & ~(0x7FF << 52)) | (exponent << 52)
    turn = torch.arange(start, start + count, device=device) % 4
    beside = low % 3 - 1
    for place, kept in ((2, 28), (3, 41)):
        usual = torch.where(turn == place, (usual >> kept << kept) + beside, usual)
    return torch.where(turn == 0, words, usual).view(torch.float64)


def _together(start: int, count: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Three fp32 operands in turns: any patterns; exponents near that of 1; a sum that nearly cancels."""
    x, y, z = (hash_words(seed, start, count, device) for seed in (4, 5, 6))
    turn = torch.arange(start, start + count, device=device) % 3

    def near(words: Tensor) -> Tensor:
        return (words & 0x807F_FFFF) | ((127 - 20 + (words >> 23 & 0xFF) % 27) << 23)

    x, y, z = (torch.where(turn == 0, words, near(words)) for words in (x, y, z))
    a, b, c = (words_to_fp32(words) for words in (x, y, z))
    cancelling = (-(a.double() * b.double())).float()
    return a, b, torch.where(turn == 2, cancelling, c)
