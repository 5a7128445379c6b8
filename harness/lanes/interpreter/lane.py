"""The interpreter lane: launches inside an overlay session, in a program order the run varies."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, replace

import torch

from bitproof.harness.case import Inputs
from bitproof.harness.errors import Unsupported
from bitproof.harness.lanes.arena import Arena
from bitproof.harness.lanes.base import Graph, Launched, LaunchFailed, Variation, call, parameters
from bitproof.harness.lanes.interpreter import order, overlay, passages, state
from bitproof.harness.lanes.interpreter.frames import with_room
from bitproof.harness.lanes.interpreter.host import answer_questions
from bitproof.harness.lanes.interpreter.numerics import sums
from bitproof.harness.lanes.interpreter.sanitizer.fence import Fence
from bitproof.harness.lanes.interpreter.sanitizer.sanitizer import Sanitizer
from bitproof.harness.spec import KernelSpec, Params, Tensors
from bitproof.harness.targets import architectures
from bitproof.harness.targets.families import lane_target
from bitproof.harness.targets.versions import libraries
from bitproof.oracles.instructions import CONFIRMED

_TARGET = "sm_90"


@dataclass(frozen=True, kw_only=True)
class InterpreterLane:
    """Runs on the CPU in Triton's interpreter, as overlaid; opening it installs the overlay.

    It computes as sm_90 does, but for matrix products where `name` says another target.
    """

    name: str = "interpreter"

    def __post_init__(self) -> None:
        """Install the overlay; raises EnvironmentUnfit on a triton it does not know."""
        overlay.install()

    @property
    def target(self) -> str:
        """Whose tensor cores multiply."""
        return lane_target(self.name) or _TARGET

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    def run(self, spec: KernelSpec, inputs: Inputs, variation: Variation) -> Launched:
        """Run once; run i of n takes the i-th of n program orders drawn from the case's seed.

        With sums reordered, programs run in reverse.
        """
        arena = Arena(device=self.device, poison=variation.poison)
        allow = frozenset(f"{one.kind}:{one.tensor}" for one in spec.tolerates)
        watch = (
            Sanitizer(arena.list_unwritten, reachable=arena.inputs, allow=allow)
            if variation.watched
            else None
        )
        # What a spec tolerates may lie in memory that nobody here knows of.
        strays = any(one.kind == "bounds" for one in spec.tolerates)
        fence = None if watch or strays else Fence(lambda: [block.buffer for block in arena.blocks])
        orders = order.orders(max(variation.runs, 1), inputs.seed)
        session = state.Session(
            order="reverse" if variation.reordered else orders[variation.run],
            watch=watch,
            fence=fence,
            fp_fusion=_fusion(),
            poison=variation.poison,
            on_grid=_claimed_on_grid(spec),
            vast=_count_vast(spec, inputs),
            small=lambda address: _lies_in(arena, inputs.tensors.keys() - spec.vast, address),
            run=variation.run,
            reordered=variation.reordered,
            scratch={"config": inputs.launch.config, "tuning": variation.tuning},
            target=self.target,
            asking=spec.claims_exact_bits(),
        )
        arch = architectures.target(self.target).arch
        with state.session(session), answer_questions(arch), passages.noting():
            try:
                outputs, tensors = with_room(lambda: call(spec, inputs, arena))
                sums.count_met_again()
            except LaunchFailed as failure:
                failure.launches = tuple(session.launches)
                raise
        launched = Launched(
            outputs=outputs,
            inputs=tensors,
            arena=arena,
            launches=tuple(session.launches),
            sums=session.sums,
            products=session.products,
        )
        if watch is None:
            return launched
        left_out = spec.list_left_out(parameters(inputs))
        judged = (tensor for name, tensor in outputs.items() if name not in left_out)
        watch.judge_outputs([*judged, *tensors.values()])

        def writer(name: str, index: tuple[int, ...]) -> str:
            program = tuple(watch.writer(outputs[name])[index].tolist())
            return "no program" if min(program) < 0 else f"program {program}"

        return replace(launched, violations=tuple(watch.violations), writer=writer)

    def launch(self, spec: KernelSpec, tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        """One call, the programs in the stock order, nothing watched."""
        with (
            state.session(state.Session(fp_fusion=_fusion(), target=self.target)),
            answer_questions(architectures.target(self.target).arch),
            passages.noting(),
        ):
            return with_room(lambda: spec.run(dict(tensors), dict(params)))

    def capture(self, spec: KernelSpec, inputs: Inputs) -> Graph:
        """Never: there is nothing to record."""
        raise Unsupported(f"lane {self.name} has no graphs")

    def usable(self) -> bool:
        """Always: what an interpreted kernel breaks, it breaks in its own launch."""
        return True

    def versions(self) -> dict[str, str]:
        """Lane and library versions, and whose products were computed where that is not sm_90."""
        told = {"lane": self.name}
        if self.target not in CONFIRMED:
            told["products"] = f"as published of {self.target}, not confirmed by a card"
        return {**told, **libraries()}


def _claimed_on_grid(spec: KernelSpec) -> frozenset[str]:
    """The conversions of which the spec accepts a hazard because nothing is left for them to round."""
    accepted = spec.lowering.accepted
    return frozenset(name for one in accepted if one.on_grid for name in one.conversions)


def _count_vast(spec: KernelSpec, inputs: Inputs) -> int | None:
    """The elements of the largest tensor here that may have 2^31 elsewhere; None where none may."""
    sizes = [inputs.tensors[name].numel() for name in spec.vast if name in inputs.tensors]
    return max(sizes, default=None)


def _lies_in(arena: Arena, names: Collection[str], address: int) -> bool:
    """Whether an address is in the memory of one of the tensors of these names."""
    named = (block.buffer for block in arena.blocks if block.name in names)
    return any(0 <= address - buffer.data_ptr() < buffer.numel() for buffer in named)


def _fusion() -> bool:
    return os.environ.get("TRITON_DEFAULT_FP_FUSION", "1") == "1"
