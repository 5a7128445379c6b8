"""A driver that compiles for a target and launches into nothing: what a machine without a GPU runs.

Triton asks its active driver what to compile for, how to load and how to launch; `triton.runtime.driver`
takes any object that answers. With this one a launcher runs on CPU tensors as it would on the target,
every kernel is compiled, and nothing is computed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from bitproof.harness.targets.architectures import Target

Heard = Callable[[Any, tuple[Any, ...]], None]


def install(target: Target, heard: Heard) -> None:
    """Make Triton compile for `target`; `heard(source, arguments)` hears of every launch.

    `source` is Triton's description of what was compiled, `arguments` those of the kernel in order.
    """
    triton.runtime.driver.set_active(_Driver(target, heard))


# Triton keeps what it compiled by device: on a device of its own, every reading starts without any.
_devices = itertools.count()


class _Driver:
    def __init__(self, target: Target, heard: Heard) -> None:
        self._device = next(_devices)
        self._target = target
        self._heard = heard
        self.utils = _Utilities(target)

    def launcher_cls(self, source: Any, _metadata: Any) -> Callable[..., None]:
        count = len(source.fn.arg_names)

        def launch(*arguments: Any, **_: Any) -> None:
            self._heard(source, arguments[len(arguments) - count :])

        return launch

    def get_current_target(self) -> GPUTarget:
        return GPUTarget(self._target.backend, self._target.arch, self._target.warp)

    def get_current_device(self) -> int:
        return self._device

    def set_current_device(self, _device: int) -> None:
        pass

    def get_current_stream(self, _device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """An autotuner that measures tries every configuration, and likes them all the same."""

        def measure(call: Callable[[], None], **_: Any) -> list[float]:
            call()
            return [1.0, 1.0, 1.0]

        return measure

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1)

    def clear_cache(self, _cache: torch.Tensor) -> None:
        pass

    def map_python_to_cpp_type(self, kind: str) -> str:
        return kind


class _Utilities:
    """What Triton asks when it loads a kernel; the only limit kept is that of shared memory."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def get_device_properties(self, _device: int) -> dict[str, int]:
        return {
            "max_shared_mem": self._target.shared_memory,
            "multiprocessor_count": 1,
            "max_num_regs": 65536,
            "warpSize": self._target.warp,
        }

    def load_binary(self, *_: Any) -> tuple[Any, ...]:
        """(module, function, registers, spills, largest number of threads)."""
        return (0, 0, 0, 0, 1 << 20)

    def unload_module(self, *_: Any) -> None:
        pass

    def fill_tma_descriptor(self, *_: Any) -> None:
        pass
