"""Another target's code on the present card: kernels compiled for the target, assembled for the card.

PTX for an older target is an input that a newer card's assembler takes, so that what Triton makes of a
kernel for sm_89 runs, instruction for instruction, on an sm_90. Two of Triton's own hooks suffice:
the driver that says what to compile for, and `knobs.runtime.add_stages_inspection_hook`, which hands out
the compiler's stages; the last one, the assembler, is told the card. Opening the lane makes sure that
both are still there and obeyed.

What cannot run so is unsupported: code for a target newer than the card, code that is specific to its own
architecture (sm_90a and later), and kernels that the target's compiler refuses.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton import knobs
from triton.backends.compiler import GPUTarget, Language
from triton.compiler.compiler import make_backend

from bitproof.harness.case import Inputs
from bitproof.harness.errors import EnvironmentUnfit, Unsupported, UsageError
from bitproof.harness.lanes.base import Launched, LaunchFailed, Variation
from bitproof.harness.lanes.cuda import CudaLane
from bitproof.harness.spec import KernelSpec, Params, Tensors
from bitproof.harness.targets.architectures import Target, target
from bitproof.harness.targets.refusals import refuses, sentence

_HOOK = "add_stages_inspection_hook"
# From here on Triton compiles for one architecture alone, whose code no other card runs.
_SPECIFIC = 90


def open_lane(name: str) -> ForeignLane:
    """The lane called `name`, such as "cuda:sm_89"; makes no CUDA context.

    Raises UsageError for a target that is not one of NVIDIA's, EnvironmentUnfit where the installed
    triton has no such hooks or does not obey them.
    """
    chosen = target(name.removeprefix("cuda:"))
    if chosen.backend != "cuda":
        raise UsageError(f"lane {name}: code for {chosen.name} does not run on an NVIDIA card")
    _keep_cache_apart(chosen)
    reassemble(chosen, _card)
    return ForeignLane(name=name, target=chosen)


def _card() -> int:
    """The present card as 10 * major + minor of its compute capability."""
    major, minor = torch.cuda.get_device_capability(0)
    return 10 * major + minor


def _keep_cache_apart(chosen: Target) -> None:
    """What is compiled here must not be found by a native run, nor the other way round."""
    folder, own = Path(knobs.cache.dir), f"foreign-{chosen.name}"
    if folder.name != own:
        os.environ["TRITON_CACHE_DIR"] = str(folder / own)


def reassemble(chosen: Target, card: Callable[[], int]) -> None:
    """Have Triton compile for `chosen` in this process, and assemble for the card that `card` names.

    The active driver stays as it is for all else. EnvironmentUnfit where triton has no such hooks.
    """
    _require(hasattr(knobs.runtime, _HOOK), f"knobs.runtime.{_HOOK} is gone")
    _require(hasattr(triton.runtime.driver, "set_active"), "its driver cannot be exchanged")
    setattr(knobs.runtime, _HOOK, _Reassembler(chosen, card))
    backend = make_backend(GPUTarget(chosen.backend, chosen.arch, chosen.warp))
    stages: dict[str, Any] = {}
    backend.add_stages(stages, backend.parse_options({}), Language.TRITON)
    obeyed = isinstance(stages.get("cubin"), _Assembler) and hasattr(backend, "make_cubin")
    _require(obeyed, f"knobs.runtime.{_HOOK} is no longer asked for the assembler")


def _require(there: bool, missing: str) -> None:
    if not there:
        raise EnvironmentUnfit(
            f"triton {triton.__version__} cannot compile for one target and assemble for another: "
            f"{missing}; use another version, or lane cuda"
        )


@dataclass(frozen=True)
class _Reassembler:
    """Triton's stages hook: exchanges the assembler, and says so in the keys of what is compiled."""

    target: Target
    card: Callable[[], int]

    def __call__(self, *arguments: Any) -> tuple[str, str] | None:
        if not arguments:
            return (f"for {self.target.name} on another card", f"foreign-{self.target.name}")
        _, stages, options, language, _ = arguments
        if "cubin" in stages and language == Language.TRITON:
            stages["cubin"] = _Assembler(target=self.target, card=self.card, options=options)
        return None


@dataclass(frozen=True, kw_only=True)
class _Assembler:
    """The last stage: PTX to a binary for the card."""

    target: Target
    card: Callable[[], int]
    options: Any

    def __call__(self, source: str, metadata: dict[str, Any]) -> bytes:
        card, made = self.card(), int(self.target.arch)
        if made > card:
            raise Unsupported(f"code for {self.target.name} does not run on an older sm_{card}")
        if made >= _SPECIFIC and made != card:
            raise Unsupported(
                f"code for {self.target.name} is specific to it and does not run on sm_{card}"
            )
        backend: Any = make_backend(GPUTarget("cuda", card, self.target.warp))
        binary: bytes = backend.make_cubin(source, metadata, self.options, card)
        return binary


@dataclass(frozen=True, kw_only=True)
class ForeignLane(CudaLane):
    """The cuda lane, with another target's code."""

    target: Target
    _active: list[Any] = field(default_factory=list)

    def run(self, spec: KernelSpec, inputs: Inputs, variation: Variation) -> Launched:
        """As on the cuda lane; what the target's compiler refuses is unsupported."""
        self._report_target()
        try:
            return super().run(spec, inputs, variation)
        except LaunchFailed as failure:
            error = failure.__cause__ or failure
            if refuses(error):
                raise LaunchFailed(spec.name) from self._explain_unsupported(error)
            raise

    def launch(self, spec: KernelSpec, tensors: Tensors, params: Params) -> dict[str, Tensor]:
        """As on the cuda lane; raises Unsupported for what the target's compiler refuses."""
        self._report_target()
        try:
            return super().launch(spec, tensors, params)
        except Exception as error:
            if refuses(error):
                raise self._explain_unsupported(error) from error
            raise

    def versions(self) -> dict[str, str]:
        """As on the cuda lane, with the target whose code ran."""
        return {**super().versions(), "lowered_for": self.target.name}

    def _explain_unsupported(self, error: BaseException) -> Unsupported:
        return Unsupported(f"{self.target.name} refuses it: {sentence(error)}")

    def _report_target(self) -> None:
        """On the first launch, make the driver report the target: the native one needs a CUDA context."""
        if not self._active:
            self._active.append(_Reporting(triton.runtime.driver.active, self.target))
            triton.runtime.driver.set_active(self._active[0])


class _Reporting:
    """A driver that is another one in everything but the target it reports."""

    def __init__(self, own: Any, reported: Target) -> None:
        self._own = own
        self._reported = reported

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def get_current_target(self) -> GPUTarget:
        """What Triton compiles for."""
        return GPUTarget(self._reported.backend, self._reported.arch, self._reported.warp)
