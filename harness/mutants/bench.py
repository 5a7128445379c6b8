"""What the mutants of one kernel share in a process: cases, the kernel's launches, oracle answers."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from bitproof.harness.bits import bits
from bitproof.harness.case import Case, Inputs, build
from bitproof.harness.compiling.launch import KernelLaunch
from bitproof.harness.lanes.base import Lane, LaunchFailed, Variation, copy_outputs
from bitproof.harness.search import falsify, profiles
from bitproof.harness.spec import KernelSpec, Params, Tensors
from bitproof.harness.subjects.discovery import FoundSpec

# Cases that show which specialisations of a kernel there are, corners apart.
DRAWN = 32
_ANSWERS = 512


@dataclass(kw_only=True)
class Bench:
    """One kernel as it is, on one lane.

    `idle` names parts of kernel functions that no case of a whole search has executed.
    """

    found: FoundSpec
    lane: Lane
    idle: set[str] = field(default_factory=set)
    _cases: list[Case] | None = field(default=None, init=False)
    _launches: dict[int, tuple[KernelLaunch, ...]] = field(default_factory=dict, init=False)
    _outputs: dict[int, Mapping[str, torch.Tensor] | None] = field(default_factory=dict, init=False)
    _answers: collections.OrderedDict[str, Mapping[str, Any]] = field(
        default_factory=collections.OrderedDict, init=False
    )

    @property
    def cases(self) -> list[Case]:
        """The cases that all mutants share: the first that are drawn, then the corners."""
        if self._cases is None:
            spec = self.found.spec
            scale = profiles.scale(self.lane.name)
            self._cases = [*falsify.draw_cases(spec, DRAWN, scale), *spec.corners]
        return self._cases

    def launches(self) -> Iterator[tuple[KernelLaunch, ...]]:
        """What the kernel launches for each of the cases, run when it is first asked for."""
        for number in range(len(self.cases)):
            if number not in self._launches:
                self.outputs(number)
            yield self._launches[number]

    def outputs(self, number: int) -> Mapping[str, torch.Tensor] | None:
        """What the kernel gives for a case; None where it refuses it."""
        if number not in self._outputs:
            inputs = build(self.cases[number], self.lane.device)
            try:
                launched = self.lane.run(self.found.spec, inputs, Variation())
            except LaunchFailed as failure:
                self._launches[number] = tuple(failure.launches)
                self._outputs[number] = None
            else:
                self._launches[number] = tuple(launched.launches or ())
                self._outputs[number] = copy_outputs(launched.outputs)
        return self._outputs[number]

    def inputs(self, number: int) -> Inputs:
        """The inputs of a case."""
        return build(self.cases[number], self.lane.device)

    def with_answers(self, spec: KernelSpec) -> KernelSpec:
        """`spec` with this kernel's oracle, which answers equal inputs from memory."""
        oracle = self.found.spec.oracle

        def remembered(tensors: Tensors, params: Params) -> Mapping[str, Any]:
            key = _digest(tensors, params)
            if key not in self._answers:
                self._answers[key] = oracle(tensors, params)
                if len(self._answers) > _ANSWERS:
                    self._answers.popitem(last=False)
            self._answers.move_to_end(key)
            return self._answers[key]

        return dataclasses.replace(spec, oracle=remembered)


def _digest(tensors: Tensors, params: Params) -> str:
    digest = hashlib.blake2b(repr(sorted(params.items(), key=str)).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(bits(tensor).contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()
