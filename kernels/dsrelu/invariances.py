"""Relations of the dsReLU backward pass that hold bit for bit in deterministic mode."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable

import torch
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs
from bitproof.harness.spec import Invariance, Tensors

_OF_ROWS = ("a", "a_scale", "c", "prob", "dprob")
_ROWS_OUT = ("d_row", "d_row_scale", "d_srelu", "dprob")


def one_row_alone() -> Invariance:
    """A row alone, with its group's weights, gives what it gives in the batch. From two rows on."""

    def chosen(inputs: Inputs) -> slice:
        row = generators.pick(inputs.seed, len(inputs.tensors["prob"]))
        return slice(row, row + 1)

    def transform(inputs: Inputs) -> Inputs | None:
        if len(inputs.tensors["prob"]) < 2:
            return None
        row = chosen(inputs)
        offsets = inputs.tensors["offsets"].clamp(row.start, row.stop) - row.start
        return inputs.replace(**of_rows(inputs, torch.arange(row.start, row.stop)), offsets=offsets)

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {name: found[name][chosen(inputs)] for name in _ROWS_OUT if name in found}

    return Invariance(name="one row alone", transform=transform, relate=relate)


def groups_permuted() -> Invariance:
    """Groups in another order, with their rows, permute every output. From two groups on.

    Scales by columns move with their groups too, but in blocks of several rows: they are left out.
    """

    def order(inputs: Inputs) -> Tensor:
        count = len(inputs.tensors["experts"])
        return generators.permutation(inputs.seed, count, torch.device("cpu"))

    def rows(inputs: Inputs) -> Tensor:
        starts = inputs.tensors["offsets"].tolist()
        runs = [torch.arange(starts[g], starts[g + 1]) for g in order(inputs).tolist()]
        return torch.cat([*runs, torch.arange(starts[-1], len(inputs.tensors["prob"]))])

    def transform(inputs: Inputs) -> Inputs | None:
        if len(inputs.tensors["experts"]) < 2:
            return None
        groups = order(inputs)
        sizes = inputs.tensors["offsets"].diff().cpu()[groups]
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
        return inputs.replace(
            **of_rows(inputs, rows(inputs)),
            **{name: _take(inputs.tensors[name], groups) for name in ("experts", "dbias")},
            offsets=offsets.to(inputs.tensors["offsets"]),
        )

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        moved = {
            name: _take(found[name], rows(inputs))
            for name in (*_ROWS_OUT, "d_col")
            if name in found
        }
        groups = order(inputs)
        return {**moved, **{name: _take(found[name], groups) for name in ("dbias", "amax")}}

    return Invariance(name="the groups in another order", transform=transform, relate=relate)


def group_split() -> Invariance:
    """A group cut in two of the same expert changes what belongs to groups, and nothing by rows.

    Applies where a group has two rows.
    """

    def transform(inputs: Inputs) -> Inputs | None:
        sizes = inputs.tensors["offsets"].diff().tolist()
        able = [group for group, size in enumerate(sizes) if size > 1]
        if not able:
            return None
        group = able[generators.pick(inputs.seed, len(able))]
        cut = 1 + generators.pick(inputs.seed + 1, sizes[group] - 1)
        offsets, experts = inputs.tensors["offsets"], inputs.tensors["experts"]
        return inputs.replace(
            offsets=_insert(offsets, group + 1, int(offsets[group]) + cut),
            experts=_insert(experts, group, int(experts[group])),
            dbias=_insert(inputs.tensors["dbias"], group, 0.0),
        )

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {name: found[name] for name in _ROWS_OUT if name in found}

    return Invariance(name="a group cut in two", transform=transform, relate=relate)


def empty_group_inserted() -> Invariance:
    """One more group without rows adds its own row to dbias and amax and changes nothing else."""

    def place(inputs: Inputs) -> int:
        return generators.pick(inputs.seed, len(inputs.tensors["experts"]) + 1)

    def transform(inputs: Inputs) -> Inputs:
        at = place(inputs)
        offsets = inputs.tensors["offsets"]
        return inputs.replace(
            offsets=_insert(offsets, at, int(offsets[at])),
            experts=_insert(inputs.tensors["experts"], at, 0),
            dbias=_insert(inputs.tensors["dbias"], at, -0.0),
        )

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        at = place(inputs)
        changed = {
            "dbias": _insert(found["dbias"], at, -0.0),
            "amax": _insert(found["amax"], at, float("-inf")),
        }
        if "d_col_scale" in found:
            scale = found["d_col_scale"]
            changed["d_col_scale"] = _insert(scale, len(scale), 0)
        return {**found, **changed}

    return Invariance(name="an empty group more", transform=transform, relate=relate)


def default_mode() -> Invariance:
    """What is no sum over tiles has the same bits with atomics as with slots."""

    def transform(inputs: Inputs) -> Inputs:
        params = {**inputs.params, "deterministic": False}
        return dataclasses.replace(inputs, params=params, case=None)

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {name: found[name] for name in found if name not in ("dprob", "dbias")}

    return Invariance(name="in default mode", transform=transform, relate=relate)


def rows_of_nobody() -> Invariance:
    """Where nobody here owns a group, buffers of -0 come back as they were: not even +0 is added."""

    def transform(inputs: Inputs) -> Inputs:
        buffers = {name: torch.full_like(inputs.tensors[name], -0.0) for name in ("dprob", "dbias")}
        return inputs.replace(experts=torch.full_like(inputs.tensors["experts"], -1), **buffers)

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        untouched = {name: torch.full_like(found[name], -0.0) for name in ("dprob", "dbias")}
        return {**untouched, "amax": torch.full_like(found["amax"], float("-inf"))}

    return Invariance(name="rows of nobody", transform=transform, relate=relate)


def resize(inputs: Inputs) -> Iterable[Inputs]:
    """Other token counts: one, and next to what the compiler specialises on."""
    tensors = inputs.tensors
    held = len(tensors["prob"])
    for count in (1, 16, 17) if held else ():
        rows = torch.arange(count) % held
        yield inputs.replace(**of_rows(inputs, rows), offsets=tensors["offsets"].clamp(max=count))


def program(output: str, index: tuple[int, ...], inputs: Inputs) -> str:
    """Which tiles wrote an element of an output, for reports."""
    if output in ("dbias", "amax", "d_col_scale"):
        return f"the tiles of group {index[0]}" if output != "d_col_scale" else "one tile"
    starts = inputs.tensors["offsets"].tolist()
    group = bisect.bisect_right(starts, index[0]) - 1
    tile = (index[0] - starts[group]) // inputs.params["block_m"]
    return f"M tile {tile} of group {group}"


def of_rows(inputs: Inputs, rows: Tensor) -> dict[str, Tensor]:
    """The inputs that have a row for each token, with `rows` of them."""
    return {n: _take(inputs.tensors[n], rows) for n in _OF_ROWS if n in inputs.tensors}


def _take(tensor: Tensor, rows: Tensor) -> Tensor:
    """Rows by their bits: torch does not index every type."""
    return bits(tensor)[rows.to(tensor.device)].view(tensor.dtype)


def _insert(tensor: Tensor, at: int, value: float) -> Tensor:
    row = torch.full_like(tensor[:1], value)
    return torch.cat([tensor[:at], row, tensor[at:]])
