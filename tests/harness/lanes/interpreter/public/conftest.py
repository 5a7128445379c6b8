"""Kernels of other projects, which must run clean; a file is collected where its package is installed."""

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch

from bitproof.harness import generators

_NEEDS = {"test_fla.py": "fla", "test_liger.py": "liger_kernel", "test_moe_ops.py": "moe_ops"}

collect_ignore = [
    name for name, package in _NEEDS.items() if importlib.util.find_spec(package) is None
]


@pytest.fixture
def clean() -> Callable[..., Any]:
    """Call a launcher in three orders: nothing to report, the same bits each time, its result."""
    from bitproof.harness.lanes.arena import Allocations, Arena
    from bitproof.harness.lanes.interpreter import overlay, state
    from bitproof.harness.lanes.interpreter.sanitizer.sanitizer import Sanitizer

    overlay.install()

    def run(call: Callable[[], Any]) -> Any:
        results = []
        for order, poison in (("forward", 0xFF), ("reverse", 0x7B), (("drawn", 0), 0xA5)):
            arena = Arena(device=torch.device("cpu"), poison=poison)
            watch = Sanitizer(arena.list_unwritten)
            with state.session(state.Session(order=order, watch=watch)), Allocations(arena):
                results.append(call())
            watch.judge_outputs(_tensors(results[-1]))
            assert [violation.text for violation in watch.violations] == []
            assert list(arena.trespasses()) == []
        first, *others = results
        for other in others:
            for one, two in zip(_tensors(first), _tensors(other), strict=True):
                assert torch.equal(one.view(torch.uint8), two.view(torch.uint8))
        return first

    return run


@pytest.fixture
def normal() -> Callable[..., torch.Tensor]:
    """`normal(*shape, seed=)`: fp32 values that look normal, from a hash."""

    def draw(*shape: int, seed: int = 0) -> torch.Tensor:
        count = torch.Size(shape).numel()
        return generators.normal(
            generators.hash_words(seed, 0, count, torch.device("cpu"))
        ).reshape(shape)

    return draw


@pytest.fixture
def small() -> Callable[..., torch.Tensor]:
    """`small(*shape, seed=)`: fp32 integers from -3 to 3, whose sums and products are exact."""

    def draw(*shape: int, seed: int = 0) -> torch.Tensor:
        count = torch.Size(shape).numel()
        words = generators.hash_words(seed, 0, count, torch.device("cpu"))
        return (words % 7 - 3).to(torch.float32).reshape(shape)

    return draw


def _tensors(result: Any) -> list[torch.Tensor]:
    """The tensors of a result, which may be nested in tuples."""
    if isinstance(result, torch.Tensor):
        return [result.detach().contiguous()]
    if isinstance(result, tuple | list):
        return [tensor for part in result for tensor in _tensors(part)]
    return []
