"""Keeps a torch function mode active where torch leaves it: inside backward passes and custom operators.

While a mode handles a function, torch takes it off the stack, so that what the function calls in Python
goes unseen. For nearly all functions that is their own business, but autograd's engine and operators of
`torch.library` run a launcher's code. Kernels registered with `Library.impl` are out of reach: nothing lists
them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch._library import custom_ops
from torch.overrides import TorchFunctionMode

_ENGINE = "_engine_run_backward"


@contextmanager
def active_within(mode: TorchFunctionMode) -> Iterator[None]:
    """While active, `mode` is on the stack wherever the engine or a custom operator calls Python."""
    with ExitStack() as stack:
        for module in (torch.autograd, torch.autograd.graph):
            run = getattr(module, _ENGINE)
            stack.enter_context(mock.patch.object(module, _ENGINE, _under(mode, run)))
        for operator in list(custom_ops.OPDEFS.values()):
            kernels = operator._backend_fns
            wrapped = {device: _under(mode, kernel) for device, kernel in kernels.items()}
            stack.enter_context(mock.patch.dict(kernels, wrapped))
        yield


def _under(mode: TorchFunctionMode, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return function(*args, **kwargs)

    return call
