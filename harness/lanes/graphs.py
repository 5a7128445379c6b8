"""A launch captured once as a CUDA graph, and replayed on other values in the same memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs
from bitproof.harness.lanes.arena import Arena, fill
from bitproof.harness.lanes.autotune import force_config
from bitproof.harness.lanes.base import (
    Uncapturable,
    Variation,
    copy_outputs,
    parameters,
    place_inputs,
    require_named_outputs,
)
from bitproof.harness.spec import KernelSpec


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The recorded work, the inputs that it reads, and the outputs that every replay writes again."""

    recorded: torch.cuda.CUDAGraph
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]

    def replay(self, inputs: Inputs) -> dict[str, Tensor]:
        """The outputs after a replay on the values of `inputs`, copied bit for bit."""
        _fill(self.inputs, inputs)
        self.recorded.replay()
        return copy_outputs(self.outputs)


def capture(spec: KernelSpec, inputs: Inputs) -> Graph:
    """Record one launch on guarded copies of `inputs`, laid out as their launch asks.

    The kernel must have run on such inputs before, so that everything is compiled. A first call on a side
    stream warms up what the launcher keeps; there a wait for the device is an error already, while it can
    be traced to its line. Outputs lie in the graph's own memory, which no replay clears. Raises
    Uncapturable from what the launcher or the end of the capture raises.
    """
    arena = Arena(device=torch.device("cuda", 0), poison=Variation().poison)
    tensors = place_inputs(spec, inputs, arena)
    here, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    recorded = torch.cuda.CUDAGraph()
    side.wait_stream(here)
    try:
        try:
            with torch.cuda.stream(side), _forbid_waits(), force_config(inputs.launch.config):
                spec.run(dict(tensors), parameters(inputs))
        finally:
            here.wait_stream(side)
        _fill(tensors, inputs)
        with torch.cuda.graph(recorded, stream=side), force_config(inputs.launch.config):
            outputs = spec.run(dict(tensors), parameters(inputs))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise Uncapturable(spec.name) from _first(error)
    named = require_named_outputs(spec, outputs, parameters(inputs))
    return Graph(recorded=recorded, inputs=tensors, outputs=named)


def _first(error: BaseException) -> BaseException:
    """What was raised first: ending a capture that failed raises over it."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _fill(tensors: Mapping[str, Tensor], inputs: Inputs) -> None:
    for name, tensor in tensors.items():
        fill(bits(tensor), bits(inputs.tensors[name]))


@contextlib.contextmanager
def _forbid_waits() -> Iterator[None]:
    """While active, torch raises where it would wait for the device, as for a tensor's value."""
    earlier = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(earlier)
