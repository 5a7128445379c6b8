"""What a lane is: the one place where a launcher is called, and what one call gives back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from bitproof.harness import layouts
from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs
from bitproof.harness.compiling.launch import KernelLaunch
from bitproof.harness.errors import EnvironmentUnfit, SpecError
from bitproof.harness.lanes.arena import POISONS, Allocations, Arena
from bitproof.harness.lanes.reentry import active_within
from bitproof.harness.spec import KernelSpec, Params, Tensors


@dataclass(frozen=True, kw_only=True)
class Variation:
    """How one run is made to differ from another of the same inputs.

    `run` numbers the run out of `runs`: it picks the poison, and whatever else the lane can vary (streams and
    a competing kernel on CUDA, the order of programs in the interpreter). `watched` asks for the
    sanitizer where the lane has one, `delayed` for a side stream on which the inputs arrive late,
    where the lane has streams. `tuning` has autotuned kernels try several configurations first, on the
    launch's own tensors, as the first call of a process does. `reordered` has float sums take another
    order, inside programs too, where the lane can: no run of compiled code does that.
    """

    run: int = 0
    runs: int = 1
    watched: bool = False
    delayed: bool = False
    tuning: bool = False
    reordered: bool = False

    @property
    def poison(self) -> int:
        """The byte that fresh memory holds in this run."""
        return POISONS[self.run % len(POISONS)]


Writer = Callable[[str, tuple[int, ...]], str]


@dataclass(frozen=True, kw_only=True)
class Launched:
    """One run of a launcher: its outputs, the inputs as it left them, and the memory they lie in.

    `violations` are the sanitizer's reports (interpreter lane only), each a dataclass with a `text`;
    `variants` are the compiled variants that the run started (cuda lane only); `writer(output, index)` words
    which program wrote an element last (watched runs on the interpreter lane only). `launches` are the
    kernels that were started, in order, or None on a lane that cannot tell. `sums` counts what may add floats
    in another order, in a reordered run what did (interpreter lane only). `products` says for each
    (file, line) of a `tl.dot` how its instruction is known (interpreter lane only): it was "read" from the
    compiler's output, all that the target has add "alike", or it is "assumed", and why.
    """

    outputs: Mapping[str, Tensor]
    inputs: Mapping[str, Tensor]
    arena: Arena
    violations: tuple[Any, ...] = ()
    variants: frozenset[str] = frozenset()
    writer: Writer | None = None
    launches: tuple[KernelLaunch, ...] | None = None
    sums: int = 0
    products: Mapping[tuple[str, int], str] = field(default_factory=dict)


class LaunchFailed(Exception):
    """A launcher raised; its exception is the cause. Nothing else a check meets is a kernel's doing.

    `launches` are the kernels that were started by then, as far as the lane can tell.
    """

    launches: tuple[KernelLaunch, ...] = ()


class Uncapturable(Exception):
    """A launcher did what no graph can hold; the cause is what torch or the driver raised."""


class Graph(Protocol):
    """A launch that was recorded once, on some inputs."""

    def replay(self, inputs: Inputs) -> dict[str, Tensor]:
        """Copies of the outputs after the recorded work ran again, on the values of `inputs`."""
        ...


class Lane(Protocol):
    """Where kernels run. A process is one lane for its whole life."""

    @property
    def name(self) -> str:
        """As on the command line: "cuda" or "interpreter"."""
        ...

    @property
    def device(self) -> torch.device:
        """Where inputs are built and outputs lie."""
        ...

    def run(self, spec: KernelSpec, inputs: Inputs, variation: Variation) -> Launched:
        """Call the launcher once on guarded copies of `inputs`; raises what `call` raises."""
        ...

    def launch(self, spec: KernelSpec, tensors: Tensors, params: Params) -> dict[str, Tensor]:
        """Call the launcher once on `tensors` as they are, in ordinary memory: for the sweep's chunks."""
        ...

    def capture(self, spec: KernelSpec, inputs: Inputs) -> Graph:
        """Record a launch that has run on such inputs before; Uncapturable where that cannot be done."""
        ...

    def usable(self) -> bool:
        """Whether this process can still launch: a GPU's sticky error says no for good."""
        ...

    def versions(self) -> dict[str, str]:
        """What a record needs to be understood later: lane, card, torch, triton, numpy, python."""
        ...


def place_inputs(spec: KernelSpec, inputs: Inputs, arena: Arena) -> dict[str, Tensor]:
    """Guarded copies of the input tensors, laid out as the case's launch asks."""
    launch = inputs.launch
    laid = layouts.lay(spec.allowed_layouts(), launch.layout, inputs.tensors)
    together: dict[str, Tensor] = {}
    for names, how in layouts.share(spec.shared, launch.layout, inputs.tensors).items():
        some = {name: inputs.tensors[name] for name in names}
        together |= arena.place_together(some, how, misalign=launch.misalign)
    return {
        name: together[name]
        if name in together
        else arena.place(
            name,
            tensor,
            strides=laid.get(name),
            misalign=launch.misalign,
            row_padding=launch.row_padding if name in spec.strided else 0,
        )
        for name, tensor in inputs.tensors.items()
    }


def call(
    spec: KernelSpec, inputs: Inputs, arena: Arena
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(outputs, inputs as the launcher left them) of one guarded call.

    Raises LaunchFailed from whatever the launcher raises, SpecError when it does not return named
    tensors, EnvironmentUnfit when it leaves the processor flushing subnormals.
    """
    tensors = place_inputs(spec, inputs, arena)
    with Allocations(arena) as mode, active_within(mode):
        try:
            outputs = spec.run(dict(tensors), parameters(inputs))
        except (Exception, SystemExit) as error:
            raise LaunchFailed(spec.name) from error
    require_subnormals()
    return require_named_outputs(spec, outputs, parameters(inputs)), tensors


def require_named_outputs(spec: KernelSpec, outputs: Any, params: Params) -> dict[str, Tensor]:
    """What a launcher returned, without what `params` leaves unwritten; SpecError for anything else."""
    where = f"spec {spec.name!r}: its launcher must return a dict of tensors by name"
    if not isinstance(outputs, Mapping) or not outputs:
        raise SpecError(f"{where}, it returned {type(outputs).__name__} {outputs!r:.80}")
    for name, output in outputs.items():
        if not isinstance(name, str) or not isinstance(output, Tensor):
            raise SpecError(f"{where}, it returned {name!r}: {type(output).__name__}")
        if output.is_complex():
            raise SpecError(f"{where}, {name!r} is complex: return torch.view_as_real of it")
    left_out = spec.list_left_out(params)
    return {name: output.detach() for name, output in outputs.items() if name not in left_out}


def copy_outputs(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies, bit for bit, for a later comparison: a launcher may reuse its buffers in the next run."""
    return {name: bits(output).clone().view(output.dtype) for name, output in outputs.items()}


def require_subnormals() -> None:
    """Raise EnvironmentUnfit where this thread's arithmetic flushes subnormals, as oracles must not."""
    smallest = sys.float_info.min
    if smallest * 0.5 == 0.0:
        raise EnvironmentUnfit(
            "subnormal numbers are flushed to zero in this process, so that no answer could be "
            "trusted: call torch.set_flush_denormal(False) after whatever library set it"
        )


def parameters(inputs: Inputs) -> dict[str, Any]:
    """What launchers and oracles receive as `params`: the plain parameters and the launch."""
    return {**inputs.params, "launch": inputs.launch}
