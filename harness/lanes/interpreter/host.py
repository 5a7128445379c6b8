"""What packages ask of a device before they launch: answered as by one H100 or H200, during a session.

Public launchers enter `torch.cpu.device(index)` for the device of their tensors, ask Triton's active driver
for the current device, its target and its properties, and size grids by the number of multiprocessors.
Without a GPU each of these raises, which would look like a crash of the kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

# Of an H200 in its SXM form, as its driver reports them.
PROPERTIES = {
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 3201000,
    "mem_bus_width": 6144,
}


class Device(contextlib.AbstractContextManager[None]):
    """`torch.cpu.device`, which torch lacks beside `torch.cuda.device`: entering it changes nothing."""

    def __init__(self, device: Any = None) -> None:
        """Take what is given, as torch's does."""

    def __exit__(self, *_error: object) -> None:
        """Nothing to restore."""


class _Utilities:
    def get_device_properties(self, _device: int) -> dict[str, int]:
        return dict(PROPERTIES)


class HostDriver:
    """Stands in for Triton's driver of a GPU; it launches nothing."""

    utils = _Utilities()

    def __init__(self, arch: int | str = 90) -> None:
        """`arch` is Triton's number of the target, such as 90."""
        self._arch = arch

    def get_current_device(self) -> int:
        """The first."""
        return 0

    def set_current_device(self, _device: int) -> None:
        """There is one."""

    def get_current_stream(self, _device: int = 0) -> int:
        """The default one."""
        return 0

    def get_current_target(self) -> GPUTarget:
        """What the lane computes as."""
        return GPUTarget("cuda", self._arch, 32)

    def get_active_torch_device(self) -> torch.device:
        """Where the lane's tensors lie."""
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        """torch's module for it."""
        return torch.cpu


@contextlib.contextmanager
def answer_questions(arch: int | str = 90) -> Iterator[None]:
    """While active, those questions are answered; a driver that is there already answers for itself.

    `arch` is Triton's number of the target that they are told.
    """
    undo: list[Callable[[], None]] = []
    if not hasattr(torch.cpu, "device"):
        torch.cpu.device = Device  # type: ignore[attr-defined]
        undo.append(lambda: delattr(torch.cpu, "device"))
    earlier = getattr(driver, "_active", None)
    if earlier is None:
        driver.set_active(HostDriver(arch))
        undo.append(lambda: setattr(driver, "_active", earlier))
    try:
        yield
    finally:
        for restore in undo:
            restore()
