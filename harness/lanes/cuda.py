"""The cuda lane: kernels compiled for the present card, runs varied by stream and by competition."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from triton import knobs

from bitproof.harness.case import Inputs
from bitproof.harness.lanes import graphs
from bitproof.harness.lanes.arena import Arena
from bitproof.harness.lanes.autotune import force_config
from bitproof.harness.lanes.base import Launched, Variation, call
from bitproof.harness.lanes.starts import noting_variants
from bitproof.harness.processes.serve import stage
from bitproof.harness.spec import KernelSpec, Params, Tensors
from bitproof.harness.targets.versions import libraries


@dataclass(frozen=True, kw_only=True)
class CudaLane:
    """Runs on the first visible GPU; opening it makes no CUDA context, the first run does."""

    name: str = "cuda"

    @property
    def device(self) -> torch.device:
        """The first visible GPU."""
        return torch.device("cuda", 0)

    def run(self, spec: KernelSpec, inputs: Inputs, variation: Variation) -> Launched:
        """Odd runs are on a side stream, every second pair beside a competing kernel.

        A delayed run is on the side stream too, behind a kernel that idles for about 20 ms: neither
        the inputs nor the poison are in place while the launcher issues its work.
        """
        arena = Arena(device=self.device, poison=variation.poison)
        here = torch.cuda.current_stream()
        if variation.run % 4 >= 2:
            _compete()
        chosen = force_config(inputs.launch.config, tuning=variation.tuning)
        if variation.run % 2 == 0 and not variation.delayed:
            with _compiling_apart(), noting_variants() as variants, chosen:
                outputs, tensors = call(spec, inputs, arena)
            return Launched(
                outputs=outputs, inputs=tensors, arena=arena, variants=frozenset(variants)
            )
        side = _stream("side")
        side.wait_stream(here)
        with torch.cuda.stream(side), _compiling_apart(), noting_variants() as variants:
            if variation.delayed:
                torch.cuda._sleep(_DELAY)  # type: ignore[no-untyped-call]
            with chosen:
                outputs, tensors = call(spec, inputs, arena)
        here.wait_stream(side)
        for block in arena.blocks:
            block.buffer.record_stream(here)
        return Launched(outputs=outputs, inputs=tensors, arena=arena, variants=frozenset(variants))

    def launch(self, spec: KernelSpec, tensors: Tensors, params: Params) -> dict[str, torch.Tensor]:
        """One call on the current stream; returns before the card is done."""
        return spec.run(dict(tensors), dict(params))

    def capture(self, spec: KernelSpec, inputs: Inputs) -> graphs.Graph:
        """A CUDA graph of one launch, on guarded copies of `inputs`."""
        return graphs.capture(spec, inputs)

    def usable(self) -> bool:
        """False after an illegal access or a device-side assertion: the context is lost."""
        try:
            torch.cuda.synchronize()
            torch.zeros(1, device=self.device)
        except RuntimeError:
            return False
        return True

    def versions(self) -> dict[str, str]:
        """Lane, card and library versions."""
        card = torch.cuda.get_device_properties(0)
        return {
            "lane": self.name,
            "card": f"{card.name} (sm_{card.major}{card.minor})",
            **libraries(),
        }


_DELAY = 40_000_000  # clock cycles


@contextlib.contextmanager
def _compiling_apart() -> Iterator[None]:
    """Have compilations be a stage of their own, so that their time does not count as the launch's."""
    runtime, stages = knobs.runtime, contextlib.ExitStack()
    earlier, later = runtime.jit_cache_hook, runtime.jit_post_compile_hook

    def begin(*args: Any, **kwargs: Any) -> bool:
        stages.enter_context(stage("compiling"))
        return bool(earlier(*args, **kwargs)) if earlier else False

    def end(*args: Any, **kwargs: Any) -> bool:
        stages.close()
        return bool(later(*args, **kwargs)) if later else False

    runtime.jit_cache_hook, runtime.jit_post_compile_hook = begin, end
    try:
        yield
    finally:
        stages.close()  # what did not compile has no end of its own
        runtime.jit_cache_hook, runtime.jit_post_compile_hook = earlier, later


@functools.cache
def _stream(purpose: str) -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def _compete() -> None:
    """Keep some multiprocessors busy on another stream, so that programs are scheduled otherwise."""
    stream = _stream("competitor")
    with torch.cuda.stream(stream):
        operand = _operand()
        torch.mm(operand, operand)


@functools.cache
def _operand() -> torch.Tensor:
    return torch.zeros((1024, 1024), dtype=torch.bfloat16, device="cuda")
