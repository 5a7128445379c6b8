"""Which stored intermediate costs a kernel its accuracy, and which ones to keep in fp32 for a target.

It asks a spec's storage model (see `harness.spec.Storage`) for the effect of each rounding alone and of all
together, as relative RMS error against the exact answer. Then it tries promotions to fp32, the smallest sets
first.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from bitproof.harness.bounds.norms import relative_error
from bitproof.harness.case import Inputs
from bitproof.harness.errors import SpecError, UsageError, describe
from bitproof.harness.lanes.base import parameters
from bitproof.harness.spec import KernelSpec, Storage
from bitproof.oracles import formats
from bitproof.oracles.formats import Floats

Tell = Callable[[int, str], None]
"""(steps done so far, a note to show beside it): called after each step."""

Watch = Callable[[str, int], contextlib.AbstractContextManager[Tell]]
"""(title, number of steps): a context whose value is the `Tell` to call during that work."""


@dataclass(kw_only=True)
class Model:
    """The storage model of one output on one set of inputs; it computes each error once and keeps it.

    stored  the points that this configuration rounds, in the spec's order
    exact   float64, the output without any rounding
    """

    spec: KernelSpec
    inputs: Inputs
    output: str
    stored: tuple[str, ...] = field(init=False)
    exact: Floats = field(init=False)
    _known: dict[frozenset[str], float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """SpecError for a model that contradicts itself, UsageError where the exact answer is 0."""
        storage, params = require_storage(self.spec), parameters(self.inputs)
        try:
            stored: Any = storage.stored(params)
        except Exception as error:
            raise SpecError(f"{self._where}: `stored` raised {describe(error)}") from error
        foreign = sorted(set(stored) - set(storage.points))
        if foreign:
            raise SpecError(
                f"{self._where}: `stored` names {foreign[0]!r}, which is none of its points "
                f"{', '.join(storage.points)}"
            )
        self.stored = tuple(point for point in storage.points if point in stored)
        self.exact = self._answer(frozenset())
        if not np.abs(self.exact[np.isfinite(self.exact)]).max(initial=0.0):
            raise UsageError(
                f"output {self.output!r} of kernel {self.spec.name!r} is 0 everywhere on these inputs, "
                "so that no error is relative to anything: give others with --case or --tensors"
            )

    @property
    def free(self) -> tuple[str, ...]:
        """The stored points that may be promoted to fp32."""
        public = require_storage(self.spec).public
        return tuple(point for point in self.stored if point not in public)

    def error(self, rounded: Iterable[str]) -> float:
        """The relative RMS error of the output with exactly these points rounded."""
        points = frozenset(rounded)
        if points not in self._known:
            self._known[points] = relative_error(self._answer(points), self.exact)
        return self._known[points]

    @property
    def _where(self) -> str:
        return f"spec {self.spec.name!r}: its storage model"

    def _answer(self, rounded: frozenset[str]) -> Floats:
        model = require_storage(self.spec).model
        try:
            answers: Any = model(self.inputs.tensors, parameters(self.inputs), rounded)
        except Exception as error:
            raise SpecError(f"{self._where} raised {describe(error)}") from error
        if not isinstance(answers, Mapping) or self.output not in answers:
            raise SpecError(f"{self._where} does not answer output {self.output!r}")
        answer = answers[self.output]
        found: Floats = formats.to_numpy(answer) if isinstance(answer, Tensor) else answer
        if not isinstance(found, np.ndarray) or found.dtype != np.float64:
            kind = getattr(found, "dtype", type(found).__name__)
            raise SpecError(f"{self._where} must answer {self.output!r} in float64, not in {kind}")
        if rounded and found.shape != self.exact.shape:
            raise SpecError(
                f"{self._where} answers {self.output!r} in shape {found.shape} with roundings, "
                f"{self.exact.shape} without"
            )
        return found


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """Relative RMS errors of one output against its exact answer.

    alone     by point: with that rounding alone, everything else exact
    together  with all stored points rounded
    kernel    the kernel's own error; infinity where its NaN or infinities differ from the exact answer's
    """

    alone: Mapping[str, float]
    together: float
    kernel: float

    @property
    def quadrature(self) -> float:
        """The sum of the errors alone if they are independent: the root of the sum of their squares."""
        return math.hypot(*self.alone.values())


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """Points kept in fp32, and the relative RMS error that the remaining roundings leave."""

    points: tuple[str, ...]
    error: float


@dataclass(frozen=True, kw_only=True)
class Promotions:
    """The result of a search for sets of points whose promotion meets a target.

    found  every such set of the smallest size, the best first; empty where no set meets the target
    floor  the relative RMS error that remains when every point is promoted that may be
    tried  how many sets were tried
    """

    found: tuple[Promotion, ...]
    floor: float
    tried: int


def require_storage(spec: KernelSpec) -> Storage:
    """The spec's storage model; UsageError when it declares none."""
    if spec.storage is None:
        raise UsageError(
            f"kernel {spec.name!r} cannot be attributed: its spec declares no `storage` model"
        )
    return spec.storage


def attribute(model: Model, got: Tensor) -> Attribution:
    """The errors of the model's roundings and of `got`, the kernel's output for the same inputs.

    SpecError when the model's answer has another shape than the kernel's.
    """
    mine = formats.to_numpy(got)
    if mine.shape != model.exact.shape:
        raise SpecError(
            f"spec {model.spec.name!r}: its storage model answers {model.output!r} in shape "
            f"{model.exact.shape}, the kernel in {mine.shape}"
        )
    with np.errstate(invalid="ignore"):  # widening a signalling NaN raises the flag
        wide = mine.astype(np.float64)
    return Attribution(
        alone={point: model.error({point}) for point in model.stored},
        together=model.error(model.stored),
        kernel=relative_error(wide, model.exact),
    )


def search(model: Model, target: float, watch: Watch) -> Promotions:
    """The smallest sets of stored points whose promotion to fp32 brings the model's error to `target`.

    Every set of a size is tried before the next size. None is skipped: roundings may cancel, so that the
    error of one set says nothing certain about another. Public points are never promoted. `watch` shows the
    progress within a size.
    """
    free = model.free
    tried = 0
    for size in range(len(free) + 1):
        with watch(f"sets of {size}", math.comb(len(free), size)) as tell:
            promotions = []
            for done, points in enumerate(itertools.combinations(free, size), start=1):
                error = model.error(point for point in model.stored if point not in points)
                promotions.append(Promotion(points=points, error=error))
                tell(done, "")
        tried += len(promotions)
        found = sorted(
            (one for one in promotions if one.error <= target), key=lambda one: one.error
        )
        if found:
            break
    floor = model.error(set(model.stored) - set(free))
    return Promotions(found=tuple(found), floor=floor, tried=tried)
