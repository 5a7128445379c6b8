"""The one declaration that says everything this project knows about a kernel under test.

To test a kernel, write a launcher `run(tensors, params) -> outputs` and hold it against a `Contract`, in a
`KernelSpec`; every property that the two declare then applies by existing. A spec may also say by itself
what a contract says, or say it otherwise.
Its parts are declared in `harness.declarations` and importable from here. See CONTRIBUTING.md for the
steps and `kernels/` for examples.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from bitproof.harness.bounds import Bound, ExactBits
from bitproof.harness.case import Case, Inputs, Launch, Scale
from bitproof.harness.contract import Contract
from bitproof.harness.declarations import (
    VIOLATIONS,
    Accepted,
    Bitwise,
    Elementwise,
    Equivalent,
    Fault,
    Invariance,
    Limit,
    Lowering,
    Params,
    Refusal,
    Storage,
    Tensors,
    Tolerated,
    Varies,
)
from bitproof.harness.errors import SpecError, describe
from bitproof.harness.fields import (
    inspect_choice,
    show,
)
from bitproof.harness.inputs import BLOCKS
from bitproof.harness.layouts import Layout, Sharing
from bitproof.harness.objects import is_of_object
from bitproof.harness.spec_fields import FIELDS
from bitproof.harness.targets.families import LANES
from bitproof.harness.targets.hazards import HAZARDS
from bitproof.harness.vocabulary import CHECKS

__all__ = [
    "CHECKS",
    "HAZARDS",
    "LANES",
    "VIOLATIONS",
    "Accepted",
    "Bitwise",
    "Contract",
    "Elementwise",
    "Equivalent",
    "Fault",
    "Invariance",
    "KernelSpec",
    "Limit",
    "Lowering",
    "Params",
    "Refusal",
    "Storage",
    "Tensors",
    "Tolerated",
    "Varies",
    "find_mistakes",
]


# A field that is left out, which is not the same as one that is said to be empty.
_UNSAID: Any = object()


@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """A kernel under test and everything that is claimed of it.

    Making one raises nothing: a file that declares several is imported whatever one of them says, and
    `find_mistakes` gathers what is wrong with each when it is found.

    contract      what is known of the operation whoever computes it; a field that is left out here and that
                  a contract has is taken from there
    name          the test id; never renamed, saved failures hang on it
    run           the launcher: (tensors, params) -> named output tensors; `params["launch"]` is the
                  case's `Launch`; of an object that is built once, `of_object(make)`
    case          the dataclass of its cases (see `harness.case`)
    cases         () -> strategy of such cases, or (scale) where they may be larger on a card or in a night
    oracle        (tensors, params) -> the expected outputs, exact bits or float64; never runs Triton
    bounds        for each output, how far it may be from the oracle and why
    dtypes        (tensors, params) -> the type of each output whose oracle answers in float64, which says
                  nothing of it; an answer in another type says it itself
    faults        planted faults; without one, what passes is not demonstrated
    reproducible  the bitwise claim, or why none is made (`Varies`)
    invariances   relations that hold bit for bit
    strided       input tensors whose rows may be apart in memory (2-D or more, last axis dense)
    layouts       for an input tensor, the layouts that its launcher takes beyond dense and `strided`, which
                  is short for "padded rows" (see `harness.layouts`)
    shared        for several input tensors, how callers may pass them in one: {("q", "k", "v"):
                  ("side by side",)} where they are views into a fused product, "one tensor" where they
                  may be the same
    vast          input tensors that may hold 2^31 elements and more: on the interpreter lane `memory` reports
                  offsets that are multiplied in 32 bits, into these, outputs of their size and whatever has
                  several axes
    inplace       input tensors that the kernel writes; all others must come back untouched
    corners       cases at far ends of the contract that `cases` hardly ever draws, cheap and few: every
                  search for a disagreement judges all of them, after those that it draws
    refuses       exception types by which the launcher refuses inputs outside its contract
    refusals      inputs outside the contract that it has to refuse, each with what is wrong in words
    limits        what a lane cannot check, and why
    tolerates     accesses that the sanitizer is not to report, and why
    unwritten     params -> the outputs that such a configuration leaves as it found them: the lanes
                  drop them, and nothing compares what they hold
    capturable    whether a launch can be captured as a CUDA graph, which replays give the same bits
    must_not_recompile
                  inputs -> inputs that differ in what must never add a compiled variant
    launches      launches that a check may spend on this kernel in a default run, by family of lanes
    must_fit      launch -> whether such a launch must never be out of resources; None where none must
    alone         whether it is judged with its card to itself: workers that share the card wait meanwhile
    program       (output, index, inputs) -> the program or tile that wrote an element, for reports
    elementwise   for a cast of fp32 elements: what it rounds to, which `bitproof sweep` goes by
    storage       the intermediates that it stores rounded, which `bitproof attribute` goes by
    lowering      what is declared of other targets' code
    blocks        the tile sizes that `Launch.block` takes in cases that follow from declared inputs, the
                  default first
    equivalents   generated mutants that are no faults, each with the reason (`bitproof mutants`)
    """

    contract: Contract | None = None
    run: Callable[[Tensors, Params], dict[str, Tensor]]
    name: str = _UNSAID
    case: type[Case] = _UNSAID
    cases: Callable[..., SearchStrategy[Any]] = _UNSAID
    oracle: Callable[[Tensors, Params], Mapping[str, Any]] = _UNSAID
    bounds: Mapping[str, Bound] = _UNSAID
    faults: tuple[Fault, ...] = ()
    reproducible: Bitwise | Varies = field(default_factory=Bitwise)
    dtypes: Callable[[Tensors, Params], Mapping[str, torch.dtype]] | None = _UNSAID
    invariances: tuple[Invariance, ...] = _UNSAID
    strided: frozenset[str] = _UNSAID
    layouts: Mapping[str, tuple[Layout, ...]] = _UNSAID
    shared: Mapping[tuple[str, ...], tuple[Sharing, ...]] = _UNSAID
    vast: frozenset[str] = _UNSAID
    inplace: frozenset[str] = _UNSAID
    corners: tuple[Case, ...] = _UNSAID
    refuses: tuple[type[Exception], ...] = _UNSAID
    refusals: tuple[Refusal, ...] = _UNSAID
    limits: tuple[Limit, ...] = ()
    tolerates: tuple[Tolerated, ...] = ()
    unwritten: Callable[[Params], frozenset[str]] | None = _UNSAID
    capturable: bool = False
    must_not_recompile: Callable[[Inputs], Iterable[Inputs]] | None = None
    launches: Mapping[str, int] = field(default_factory=lambda: {"cuda": 800, "interpreter": 400})
    must_fit: Callable[[Launch], bool] | None = None
    alone: bool = False
    program: Callable[[str, tuple[int, ...], Inputs], str] | None = None
    elementwise: Elementwise | None = _UNSAID
    storage: Storage | None = _UNSAID
    lowering: Lowering = field(default_factory=Lowering)
    blocks: tuple[int, ...] = BLOCKS
    equivalents: tuple[Equivalent, ...] = ()

    def __post_init__(self) -> None:
        """Take what is left out from the contract, or leave it empty where there is none."""
        contract = self.contract if isinstance(self.contract, Contract) else Contract(name="")
        said = contract.fields(self.blocks, warm=is_of_object(self.run))
        for name, value in said.items():
            if getattr(self, name) is _UNSAID:
                object.__setattr__(self, name, value)

    @property
    def bitwise(self) -> Bitwise | None:
        """The bitwise claim, None where the spec makes none."""
        return self.reproducible if isinstance(self.reproducible, Bitwise) else None

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

    def allowed_layouts(self) -> dict[str, tuple[Layout, ...]]:
        """For each tensor that may lie otherwise than dense, how: by `strided` and by `layouts`."""
        rows: dict[str, tuple[Layout, ...]] = dict.fromkeys(self.strided, ("padded rows",))
        return {
            name: tuple(dict.fromkeys((*rows.get(name, ()), *self.layouts.get(name, ()))))
            for name in sorted({*rows, *self.layouts})
        }

    def list_left_out(self, params: Params) -> frozenset[str]:
        """The outputs that the configuration `params` leaves unwritten."""
        return self.unwritten(params) if self.unwritten else frozenset()

    def claims_exact_bits(self) -> bool:
        """Whether any output must have the oracle's very bits."""
        return any(isinstance(bound, ExactBits) for bound in self.bounds.values())


def find_mistakes(spec: KernelSpec, checks: Collection[str]) -> tuple[str, ...]:
    """Everything that is wrong with `spec`, a sentence each; empty for a sound one.

    `checks` are the names of the checks that there are.
    """
    wrong = {name: list(inspect(name, getattr(spec, name))) for name, inspect in FIELDS.items()}
    if isinstance(spec.contract, Contract) and wrong["contract"]:  # the other fields follow from it
        return tuple(wrong["contract"])
    found = [sentence for sentences in wrong.values() for sentence in sentences]
    for fields, compare in _RELATIONS:
        # A field that holds what it must not says nothing of the others.
        if not any(wrong[name] for name in fields):
            found += compare(spec)
    faults = () if wrong["faults"] else spec.faults
    limits = () if wrong["limits"] else spec.limits
    return (*found, *_find_misnamed_checks(faults, limits, sorted(checks)))


def _find_misnamed_checks(
    faults: Iterable[Fault], limits: Iterable[Limit], checks: Sequence[str]
) -> Iterator[str]:
    for fault in faults:
        yield from inspect_choice(f"fault {fault.name!r}: caught_by", fault.caught_by, checks)
    for limit in limits:
        yield from inspect_choice(f"limit on lane {limit.lane}: check", limit.check, checks)


def _compare_names(spec: KernelSpec) -> Iterator[str]:
    for what, parts in (("planted faults", spec.faults), ("invariances", spec.invariances)):
        names = [part.name for part in parts]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"{names.count(name)} {what} are called {name!r}: give each a name of its own"


def _compare_outputs(spec: KernelSpec) -> Iterator[str]:
    claim, storage, cast = spec.bitwise or Bitwise(), spec.storage, spec.elementwise
    named = {
        "reproducible: outputs": sorted(claim.outputs),
        "reproducible: varies": sorted(claim.varies),
        "storage: outputs": storage.outputs if storage is not None else (),
        "elementwise: output": (cast.output,) if cast is not None else (),
    }
    for where, outputs in named.items():
        for output in outputs:
            if output not in spec.bounds:
                known = ", ".join(spec.bounds)
                yield f"{where} names {output!r}, which has no bound: there are {known}"


def _compare_layouts(spec: KernelSpec) -> Iterator[str]:
    for name in sorted(spec.inplace & set(spec.layouts)):
        if "expanded" in spec.layouts[name]:
            yield (
                f"layouts lets {name!r} be expanded, and inplace says that it is written: elements that "
                "share memory cannot be, leave one of the two out"
            )


def _compare_shared(spec: KernelSpec) -> Iterator[str]:
    for names, how in spec.shared.items():
        written = sorted(spec.inplace & set(names))
        if written and "one tensor" in how:
            yield (
                f"shared lets {', '.join(names)} be one tensor, and inplace says that {written[0]} is "
                "written: leave one of the two out"
            )


def _compare_shown(spec: KernelSpec) -> Iterator[str]:
    faults = {fault.name: fault for fault in spec.faults}
    shown = spec.bitwise.shown_by if spec.bitwise else None
    if shown is None:
        return
    if shown not in faults:
        known = ", ".join(repr(name) for name in faults) or "none that are planted"
        yield f"reproducible: shown_by names {shown!r}, which is no planted fault: choose from {known}"
    elif faults[shown].caught_by != "reproducibility":
        yield (
            f"reproducible: shown_by names {shown!r}, which {faults[shown].caught_by} catches: name a "
            "fault that reproducibility catches"
        )


def _compare_cases(spec: KernelSpec) -> Iterator[str]:
    named: dict[str, Case] = {f"corners[{place}]": case for place, case in enumerate(spec.corners)}
    named |= {f"refusal {refusal.name!r}: case": refusal.case for refusal in spec.refusals}
    for where, case in named.items():
        if not isinstance(case, spec.case):
            yield f"{where} must be a {spec.case.__name__} as `case` says, got {show(case)}"


def _compare_refusals(spec: KernelSpec) -> Iterator[str]:
    if spec.refusals and not spec.refuses:
        yield (
            "refusals says what the launcher refuses, but refuses names no exception by which it does: "
            "name there what it raises, such as (ValueError,)"
        )


# What fields say of each other, and the fields that it is asked of.
_RELATIONS: tuple[tuple[tuple[str, ...], Callable[[KernelSpec], Iterator[str]]], ...] = (
    (("faults", "invariances"), _compare_names),
    (("bounds", "reproducible", "storage", "elementwise"), _compare_outputs),
    (("faults", "reproducible"), _compare_shown),
    (("case", "corners", "refusals"), _compare_cases),
    (("refuses", "refusals"), _compare_refusals),
    (("layouts", "inplace"), _compare_layouts),
    (("shared", "inplace"), _compare_shared),
)
