"""The one declaration that says everything this project knows about a kernel under test.

To test a kernel, write a launcher `run(tensors, params) -> outputs`, an oracle with the same signature,
a strategy of cases, and put them in a `KernelSpec`; every property it declares then applies by existing.
See CONTRIBUTING.md for the steps and `kernels/` for examples.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis.strategies import SearchStrategy
from numpy.typing import NDArray
from torch import Tensor

from bitproof.harness.bounds import Bound
from bitproof.harness.case import Case, Inputs, Launch, Scale
from bitproof.harness.errors import SpecError, describe
from bitproof.harness.vocabulary import CHECKS, HAZARDS, LANES, VIOLATIONS
from bitproof.oracles.rounding import Mode, Overflow

Tensors = Mapping[str, Tensor]
Params = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Bitwise:
    """The claim that equal inputs give equal bits: over `runs` runs that are made to differ.

    The claim must be shown able to fail: by `control`, the launcher of a variant that is expected to
    vary on the same cases, or by `shown_by`, the name of a planted fault that the reproducibility check
    catches. `outputs` are those the claim is about, all where none are named; `varies` are those of
    which the control must be seen to vary, any one of them where none are named.
    """

    runs: int = 8
    outputs: frozenset[str] = frozenset()
    varies: frozenset[str] = frozenset()
    control: Callable[[Tensors, Params], dict[str, Tensor]] | None = None
    shown_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class Invariance:
    """A relation between two runs that holds bit for bit.

    `transform` makes the second inputs from the first, or returns None where the relation does not
    apply; `relate(outputs, inputs)` says what the second run must give, from the first run's outputs.
    Outputs left out of `relate`'s answer are not compared.

    start         makes the first run's inputs, where those are not the case's own; None as above
    carry         (outputs, inputs) -> inputs of one more run, from the second run's outputs and the
                  first inputs: what is related is then that last run
    signed_zeros  whether a zero's sign counts
    """

    name: str
    transform: Callable[[Inputs], Inputs | None]
    relate: Callable[[Tensors, Inputs], Tensors]
    start: Callable[[Inputs], Inputs | None] | None = None
    carry: Callable[[Tensors, Inputs], Inputs] | None = None
    signed_zeros: bool = True

    @property
    def launches(self) -> int:
        """How many runs it takes beside the one that all invariances share."""
        return 1 + (self.start is not None) + (self.carry is not None)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A planted fault: one edit of the source that the named check must catch.

    `old` must occur exactly once within the function or constant called `within`, in the file that
    declares the spec, or in the module `module` that it imports from. `lanes` are the lanes on which
    the check is able to see it; anything less than all of them carries its reason in `because`.
    """

    name: str
    within: str
    old: str
    new: str
    caught_by: str
    module: str | None = None
    lanes: tuple[str, ...] = LANES
    because: str = ""


@dataclass(frozen=True, kw_only=True)
class Tolerated:
    """Something the sanitizer would report that is meant: `kind` ("race", ...) on argument `tensor`."""

    kind: str
    tensor: str
    because: str


@dataclass(frozen=True, kw_only=True)
class Elementwise:
    """The declaration that a kernel rounds every fp32 element by itself, so that all 2^32 can be tried.

    `bitproof sweep` launches it on [n] fp32 values in `input` and reads [n] elements of the number
    format named `format` (see `oracles.formats`) in `output`, with `{"launch": Launch(block=...)}` as
    its only parameters; the launcher takes any power of two up to 2^16 as block. `mode` and `overflow`
    are the rounding and the policy of `oracles.rounding.round_to`. `case`, from a few bit patterns to
    the case that holds just those, lets a sweep that falls short leave a record that replays.
    """

    input: str
    output: str
    format: str
    mode: Mode = "rne"
    overflow: Overflow = "saturate"
    case: Callable[[tuple[int, ...]], Case] | None = None


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The intermediates that a kernel stores in less than fp32, and what rounding them does to its outputs.

    points   names of the stored intermediates, in the order of the computation
    outputs  the outputs that the model answers, the one that matters most first
    stored   params -> the points that such a configuration really rounds
    model    (tensors, params, rounded) -> those outputs in float64, when exactly the points in `rounded`
             are rounded and all else is exact: the empty set gives the exact answer
    public   points that are rounded to a dtype callers see, such as an output's own: never promoted

    `bitproof attribute` goes by it.
    """

    points: tuple[str, ...]
    outputs: tuple[str, ...]
    stored: Callable[[Params], frozenset[str]]
    model: Callable[[Tensors, Params, frozenset[str]], Mapping[str, NDArray[np.float64]]]
    public: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Something the harness cannot ask of this kernel on a lane, and a reproduction that shows why."""

    lane: str
    check: str
    because: str
    reproduction: str


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A hazard in targets' code (see `HAZARDS`) that is known, and why it does no harm.

    `targets` narrows it to those targets; it need not show under every version of Triton.
    """

    hazard: str
    because: str
    targets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lowering:
    """What is declared of the code that compilers make of a kernel; `bitproof lowering` goes by it.

    supports  targets, such as "sm_89", for which it must compile; others may refuse it
    alone     whether it is for no others: the property suite then reads nothing for them
    products  formats that operands of a product may be rounded to, such as "tf32", beyond their own
    accepted  hazards that are known and do no harm
    most      specialisations of one kernel function that are compiled at most: it bounds the time, and the
              first few, chosen as they are, show nearly everything
    """

    supports: tuple[str, ...] = ()
    alone: bool = False
    products: tuple[str, ...] = ()
    accepted: tuple[Accepted, ...] = ()
    most: int = 8


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """A kernel under test and everything that is claimed of it.

    name          the test id; never renamed, saved failures hang on it
    run           the launcher: (tensors, params) -> named output tensors; `params["launch"]` is the
                  case's `Launch`
    case          the dataclass of its cases (see `harness.case`)
    cases         () -> strategy of such cases, or (scale) where they may be larger on a card or in a night
    oracle        (tensors, params) -> the expected outputs, exact bits or float64; never runs Triton
    bounds        for each output, how far it may be from the oracle and why
    dtypes        (tensors, params) -> the type of each output whose oracle answers in float64, which says
                  nothing of it; an answer in another type says it itself
    faults        planted faults; at least one
    reproducible  the bitwise claim
    invariances   relations that hold bit for bit
    strided       input tensors whose rows may be apart in memory (2-D or more, last axis dense)
    inplace       input tensors that the kernel writes; all others must come back untouched
    refuses       exception types by which the launcher refuses inputs outside its contract
    limits        what a lane cannot check, and why
    tolerates     accesses that the sanitizer is not to report, and why
    unwritten     params -> the outputs that such a configuration leaves as it found them: the lanes
                  drop them, and nothing compares what they hold
    capturable    whether a launch can be captured as a CUDA graph, which replays give the same bits
    resized       inputs -> inputs that differ in what must never add a compiled variant
    launches      launches that a check may spend on this kernel in a default run, by lane
    program       (output, index, inputs) -> the program or tile that wrote an element, for reports
    elementwise   for a cast of fp32 elements: what it rounds to, which `bitproof sweep` goes by
    storage       the intermediates that it stores rounded, which `bitproof attribute` goes by
    lowering      what is declared of other targets' code
    """

    name: str
    run: Callable[[Tensors, Params], dict[str, Tensor]]
    case: type[Case]
    cases: Callable[..., SearchStrategy[Any]]
    oracle: Callable[[Tensors, Params], Mapping[str, Any]]
    bounds: Mapping[str, Bound]
    faults: tuple[Fault, ...]
    reproducible: Bitwise
    dtypes: Callable[[Tensors, Params], Mapping[str, torch.dtype]] | None = None
    invariances: tuple[Invariance, ...] = ()
    strided: frozenset[str] = frozenset()
    inplace: frozenset[str] = frozenset()
    refuses: tuple[type[Exception], ...] = ()
    limits: tuple[Limit, ...] = ()
    tolerates: tuple[Tolerated, ...] = ()
    unwritten: Callable[[Params], frozenset[str]] | None = None
    capturable: bool = False
    resized: Callable[[Inputs], Iterable[Inputs]] | None = None
    launches: Mapping[str, int] = field(default_factory=lambda: {"cuda": 800, "interpreter": 400})
    program: Callable[[str, tuple[int, ...], Inputs], str] | None = None
    elementwise: Elementwise | None = None
    storage: Storage | None = None
    lowering: Lowering = Lowering()

    def __post_init__(self) -> None:
        """Reject a declaration that contradicts itself, naming the field and what it lacks."""
        where = f"spec {self.name!r}"
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise SpecError(f"{where}: a name is lower-case words joined by underscores")
        if not self.bounds:
            raise SpecError(f"{where} has no bounds: declare one for each output")
        if not self.faults:
            raise SpecError(f"{where} has no planted fault: add one that its checks must catch")
        self._check_faults(where)
        self._check_claim(where)
        self._check_storage(where)
        if self.lowering.alone and not self.lowering.supports:
            raise SpecError(
                f"{where}: its lowering is for no target at all: name those it supports"
            )
        for accepted in self.lowering.accepted:
            if accepted.hazard not in HAZARDS or not accepted.because:
                raise SpecError(
                    f"{where}: an accepted hazard needs its reason and is one of "
                    f"{', '.join(HAZARDS)}, not {accepted.hazard!r}"
                )
        for tolerated in self.tolerates:
            if tolerated.kind not in VIOLATIONS or not tolerated.because:
                raise SpecError(
                    f"{where}: what it tolerates needs its reason and is one of "
                    f"{', '.join(VIOLATIONS)}, not {tolerated.kind!r}"
                )
        for limit in self.limits:
            if not (limit.because and limit.reproduction):
                raise SpecError(f"{where}: a limit needs its reason and a reproduction")
            if limit.lane not in LANES or limit.check not in CHECKS:
                raise SpecError(
                    f"{where}: a limit names lane {limit.lane!r} and check {limit.check!r}; there "
                    f"are lanes {', '.join(LANES)} and checks {', '.join(CHECKS)}"
                )

    def _check_faults(self, where: str) -> None:
        names = [fault.name for fault in self.faults]
        if len(set(names)) != len(names):
            raise SpecError(f"{where}: two planted faults share a name")
        for fault in self.faults:
            if fault.caught_by not in CHECKS:
                known = ", ".join(CHECKS)
                raise SpecError(
                    f"{where}: fault {fault.name!r} names the check {fault.caught_by!r}; "
                    f"there are {known}"
                )
            if not fault.lanes or not set(fault.lanes) <= set(LANES):
                known = ", ".join(LANES)
                raise SpecError(
                    f"{where}: fault {fault.name!r} is for lanes {fault.lanes}; there are {known}"
                )
            if set(fault.lanes) != set(LANES) and not fault.because:
                raise SpecError(f"{where}: fault {fault.name!r} leaves out a lane without a reason")

    def _check_claim(self, where: str) -> None:
        claim = self.reproducible
        if claim.runs < 2:
            raise SpecError(f"{where}: reproducibility needs at least 2 runs, got {claim.runs}")
        unknown = sorted((claim.outputs | claim.varies) - set(self.bounds))
        if unknown:
            raise SpecError(f"{where}: its bitwise claim names {unknown[0]!r}, which has no bound")
        if claim.varies and claim.control is None:
            raise SpecError(f"{where}: its bitwise claim says what varies but has no control")
        shown = [f for f in self.faults if f.name == claim.shown_by]
        if not shown and (claim.control is None or claim.shown_by is not None):
            raise SpecError(
                f"{where}: its bitwise claim names neither a control nor one of its planted faults"
            )
        if shown and shown[0].caught_by != "reproducibility":
            raise SpecError(
                f"{where}: {claim.shown_by!r} shows the bitwise claim, so the check that catches it "
                "must be reproducibility"
            )

    def _check_storage(self, where: str) -> None:
        storage = self.storage
        if storage is None:
            return
        for what, named in (("point", storage.points), ("output", storage.outputs)):
            if isinstance(named, str) or not named:
                raise SpecError(
                    f"{where}: its storage model needs a tuple of {what}s, got {named!r}"
                )
            if len(set(named)) != len(named):
                raise SpecError(f"{where}: its storage model names a {what} twice: {named}")
        foreign = sorted(storage.public - set(storage.points))
        if foreign:
            raise SpecError(
                f"{where}: its storage model calls {foreign[0]!r} public, which is none of its points "
                f"{', '.join(storage.points)}"
            )
        unknown = [name for name in storage.outputs if name not in self.bounds]
        if unknown:
            raise SpecError(
                f"{where}: its storage model answers {unknown[0]!r}, which has no bound; there are "
                f"{', '.join(self.bounds)}"
            )

    def strategy(self, scale: Scale) -> SearchStrategy[Any]:
        """The strategy of cases, as large as `scale` says; SpecError when `cases` makes none."""
        try:
            scaled = "scale" in inspect.signature(self.cases).parameters
            strategy: Any = self.cases(scale=scale) if scaled else self.cases()
        except Exception as error:
            raise SpecError(f"spec {self.name!r}: its cases raised {describe(error)}") from error
        if not isinstance(strategy, SearchStrategy):
            raise SpecError(
                f"spec {self.name!r}: its cases must be a function that returns a strategy, "
                f"it returned {type(strategy).__name__}"
            )
        return strategy

    def launch_of(self, params: Params) -> Launch:
        """The launch configuration inside `params`, for launchers and oracles."""
        launch = params.get("launch", Launch())
        assert isinstance(launch, Launch)
        return launch

    def left_out(self, params: Params) -> frozenset[str]:
        """The outputs that the configuration `params` leaves unwritten."""
        return self.unwritten(params) if self.unwritten else frozenset()
