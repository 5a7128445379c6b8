"""Kernels that take a card down, or hold it for ever, on one input in fifty; and one that does neither."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import triton
import triton.language as tl
from hypothesis import strategies as st
from torch import Tensor

from bitproof import Bitwise, Fault, KernelSpec, exact_bits
from bitproof.harness.case import Launch

_FIFTY = 50
_ROWS = (1, 2, 49, _FIFTY, 51, 99, 2 * _FIFTY, 3 * _FIFTY)
_MORE_THAN_A_CARD = 1 << 42  # bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsCase:
    """`rows` int32 values that count up."""

    rows: int
    launch: Launch = Launch()

    def tensors(self, device: torch.device) -> dict[str, Tensor]:
        """x of shape (rows,), int32."""
        return {"x": torch.arange(self.rows, dtype=torch.int32, device=device)}

    def params(self) -> dict[str, Any]:
        """None but the launch."""
        return {}

    def features(self) -> tuple[str, ...]:
        """Whether it is the one in fifty."""
        return ("one in fifty",) if self.rows % _FIFTY == 0 else ()


@triton.jit
def _double(x, y, hold, rows, far, ASSERT: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < rows, other=0)
    held = tl.load(hold, volatile=True)
    while held != 0:  # for ever, since nobody writes it
        held = tl.load(hold, volatile=True)
    if ASSERT:
        tl.device_assert(far == 0, "as asked")
    tl.store(y + far + offsets, 2 * value, mask=offsets < rows)


def _run(tensors: dict[str, Tensor], *, far: int = 0, held: int = 0, check: bool = False) -> Any:
    x = tensors["x"]
    y = torch.empty_like(x)
    hold = torch.full((1,), held, dtype=torch.int32, device=x.device)
    grid = (triton.cdiv(x.numel(), 64),)
    _double[grid](x, y, hold, x.numel(), far, ASSERT=check, BLOCK=64, debug=check)
    return {"y": y}


def _is_bad(tensors: dict[str, Tensor]) -> bool:
    return tensors["x"].numel() % _FIFTY == 0


def stores_far(tensors: dict[str, Tensor], params: dict[str, Any]) -> Any:
    """An illegal access: 2^42 elements beyond the output."""
    return _run(tensors, far=(1 << 42) if _is_bad(tensors) else 0)


def never_ends(tensors: dict[str, Tensor], params: dict[str, Any]) -> Any:
    """An endless kernel."""
    return _run(tensors, held=1 if _is_bad(tensors) else 0)


def asserts(tensors: dict[str, Tensor], params: dict[str, Any]) -> Any:
    """A device-side assertion, after which the context is lost."""
    return _run(tensors, far=2 if _is_bad(tensors) else 0, check=True)


def wants_more(tensors: dict[str, Tensor], params: dict[str, Any]) -> Any:
    """An allocation larger than any card."""
    if _is_bad(tensors):
        torch.empty(_MORE_THAN_A_CARD, dtype=torch.int8, device=tensors["x"].device)
    return _run(tensors)


def is_sound(tensors: dict[str, Tensor], params: dict[str, Any]) -> Any:
    """Right on every input."""
    return _run(tensors)


def _double_exactly(tensors: dict[str, Tensor], params: dict[str, Any]) -> Any:
    return {"y": 2 * tensors["x"]}


_STALE = Fault(
    name="adds to what was there",
    within="_double",
    old="2 * value",
    new="2 * value + tl.load(y + offsets, mask=offsets < rows, other=0)",
    caught_by="reproducibility",
)
_HALF = Fault(
    name="halves",
    within="_double",
    old="2 * value",
    new="value",
    caught_by="agreement",
)
SPECS = tuple(
    KernelSpec(
        name=run.__name__,
        run=run,
        case=RowsCase,
        cases=lambda: st.builds(RowsCase, rows=st.sampled_from(_ROWS)),
        oracle=_double_exactly,
        bounds={"y": exact_bits()},
        faults=(_HALF, _STALE),
        reproducible=Bitwise(runs=2, shown_by=_STALE.name),
    )
    for run in (stores_far, never_ends, asserts, wants_more, is_sound)
)
