"""The parts of a `KernelSpec`: what is claimed, planted, accepted and left out.

A part rejects its own mistakes where it is written, with a SpecError of one sentence; what only shows
beside the other parts is gathered by `harness.spec.find_mistakes`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bitproof.harness.case import Case, Inputs
from bitproof.harness.fields import (
    inspect_choice,
    inspect_choices,
    inspect_count,
    inspect_function,
    inspect_names,
    inspect_text,
    inspect_tuple,
    reject,
    show,
)
from bitproof.harness.targets.architectures import ALL as TARGETS
from bitproof.harness.targets.families import LANES, family
from bitproof.harness.targets.hazards import CONVERTING, HAZARDS
from bitproof.oracles.formats import FORMATS
from bitproof.oracles.rounding import Mode, Overflow

_FORMAT = f"({'|'.join(FORMATS)})"
_CONVERSION = f"{_FORMAT} to {_FORMAT}( toward zero)?"
# One, or two of which the second takes what the first gave.
_CONVERSIONS = f"{_CONVERSION}(, then {_CONVERSION})?"

# What the sanitizer reports, and a spec may tolerate.
VIOLATIONS = ("assert", "bounds", "race", "unwritten")

Tensors = Mapping[str, Tensor]
Params = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Bitwise:
    """The claim that equal inputs give equal bits: over `runs` runs that are made to differ.

    The claim is demonstrated where it was shown able to fail: by `control`, the launcher of a variant that is
    expected to vary on the same cases, or by `shown_by`, the name of a planted fault that the
    reproducibility check catches. `outputs` are those the claim is about, all where none are named; `varies`
    are those of which the control must be seen to vary, any one of them where none are named.

    A claim over sums of floats without a `control` must also be shown to hang on their order: on the
    interpreter lane a run adds in another one, which has to give other bits on some case. `any_order` says
    why no order does, such as "counts below 2^24": the check fails where one does.
    """

    runs: int = 8
    outputs: frozenset[str] = frozenset()
    varies: frozenset[str] = frozenset()
    control: Callable[[Tensors, Params], dict[str, Tensor]] | None = None
    shown_by: str | None = None
    any_order: str = ""

    def __post_init__(self) -> None:
        """SpecError for a claim over fewer than two runs, or for outputs that vary without a control."""
        reject("Bitwise", self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        if isinstance(self.runs, int) and self.runs < 2:
            yield f"reproducibility needs at least 2 runs, got {self.runs}"
        yield from inspect_count("runs", self.runs, 2)
        yield from inspect_names("outputs", self.outputs, "names of outputs")
        yield from inspect_names("varies", self.varies, "names of outputs")
        called = "(tensors, params) -> outputs"
        yield from inspect_function("control", self.control, called, optional=True)
        if self.shown_by is not None:
            yield from inspect_text("shown_by", self.shown_by, "the name of a planted fault")
        if not isinstance(self.any_order, str):
            yield (
                "any_order must be the reason why no order of its sums gives other bits, as text, got "
                f"{self.any_order!r}"
            )
        if self.varies and self.control is None:
            names = ", ".join(sorted(self.varies))
            yield f"varies says that {names} varies, but there is no control: give one, or leave it out"


@dataclass(frozen=True, kw_only=True)
class Varies:
    """In place of `Bitwise`: equal inputs need not give equal bits, and why that is meant."""

    because: str

    def __post_init__(self) -> None:
        """SpecError without a reason."""
        reject("Varies", inspect_text("because", self.because, "the reason why bits may vary"))


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
    configured    whether the second run is repeated in every autotune configuration of the kernels launched;
                  applies to launches that have a choice
    """

    name: str
    transform: Callable[[Inputs], Inputs | None]
    relate: Callable[[Tensors, Inputs], Tensors]
    start: Callable[[Inputs], Inputs | None] | None = None
    carry: Callable[[Tensors, Inputs], Inputs] | None = None
    signed_zeros: bool = True
    configured: bool = False

    def __post_init__(self) -> None:
        """SpecError for a relation without a name or without its functions."""
        where = f"Invariance {self.name!r}"
        reject(where, inspect_text("name", self.name, "what a report calls the relation"))
        called = "inputs -> inputs or None"
        reject(where, inspect_function("transform", self.transform, called))
        reject(where, inspect_function("relate", self.relate, "(outputs, inputs) -> outputs"))
        reject(where, inspect_function("start", self.start, called, optional=True))
        called = "(outputs, inputs) -> inputs"
        reject(where, inspect_function("carry", self.carry, called, optional=True))

    @property
    def launches(self) -> int:
        """How many runs it takes beside the one that all invariances share."""
        return 1 + (self.start is not None) + (self.carry is not None)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A planted fault: one edit of the source that the named check must catch.

    `old` must occur exactly once within the function or constant called `within`, in the file that
    declares the spec, or in the module `module` that it imports from. `lanes` are the families of lanes
    on which the check is able to see it; anything less than all of them carries its reason in `because`.
    """

    name: str
    within: str
    old: str
    new: str
    caught_by: str
    module: str | None = None
    lanes: tuple[str, ...] = LANES
    because: str = ""

    def __post_init__(self) -> None:
        """SpecError for an edit that changes nothing, an unknown lane, or one left out without a reason."""
        reject(f"Fault {self.name!r}", self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        yield from inspect_text("name", self.name, "what a report calls the fault")
        yield from _inspect_edit(self)
        yield from inspect_text("caught_by", self.caught_by, "the name of a check")
        wrong = list(_inspect_families("lanes", self.lanes))
        yield from wrong
        if not wrong and not self.lanes:
            yield f"lanes is empty, so that no check can catch it: choose from {', '.join(LANES)}"
        elif not wrong and set(self.lanes) != set(LANES) and not self.because:
            missing = ", ".join(sorted(set(LANES) - set(self.lanes)))
            yield f"lanes leaves out {missing} without a reason: say in because why it cannot show there"


@dataclass(frozen=True, kw_only=True)
class Equivalent:
    """A generated mutant that is no fault although no proof was found: a person says why in one line.

    `old` must occur exactly once within the function or constant `within`, as with a `Fault`, and `new` is
    what the mutant has in its place. `bitproof mutants` reports an edit that no longer applies.
    """

    within: str
    old: str
    new: str
    because: str
    module: str | None = None

    def __post_init__(self) -> None:
        """SpecError for an edit that changes nothing, or without a reason."""
        reject(f"Equivalent of {self.within!r}", self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        yield from _inspect_edit(self)
        yield from inspect_text("because", self.because, "the reason why nothing changes")

    def as_fault(self) -> Fault:
        """The same edit as the machinery takes it that plants faults."""
        return Fault(
            name=f"{self.old} -> {self.new}",
            within=self.within,
            old=self.old,
            new=self.new,
            caught_by="agreement",
            module=self.module,
        )


def _inspect_edit(edit: Fault | Equivalent) -> Iterator[str]:
    yield from inspect_text("within", edit.within, "the name of a function or constant")
    yield from inspect_text("old", edit.old, "the part of the source that is exchanged")
    if not isinstance(edit.new, str):
        yield f"new must be what comes in the place of old, as text, got {edit.new!r}"
    if edit.new == edit.old:
        yield f"old and new are the same, {edit.old!r}: an edit must change something"
    if edit.module is not None:
        yield from inspect_text("module", edit.module, "the full name of a module")


@dataclass(frozen=True, kw_only=True)
class Tolerated:
    """Something the sanitizer would report that is meant: `kind` ("race", ...) on argument `tensor`."""

    kind: str
    tensor: str
    because: str

    def __post_init__(self) -> None:
        """SpecError for what the sanitizer does not report, or without a reason."""
        where = f"Tolerated {self.kind!r}"
        reject(where, inspect_choice("kind", self.kind, VIOLATIONS))
        reject(where, inspect_text("because", self.because, "the reason why it is meant"))


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

    def __post_init__(self) -> None:
        """SpecError for an unknown format, rounding or policy."""
        reject("Elementwise", self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        yield from inspect_text("input", self.input, "the name of a tensor")
        yield from inspect_text("output", self.output, "the name of an output")
        yield from inspect_choice("format", self.format, tuple(FORMATS))
        yield from inspect_choice("mode", self.mode, get_args(Mode))
        yield from inspect_choice("overflow", self.overflow, get_args(Overflow))
        yield from inspect_function("case", self.case, "(bit patterns) -> case", optional=True)


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

    def __post_init__(self) -> None:
        """SpecError for points or outputs that are none, come twice, or are public without being points."""
        reject("Storage", self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        for field, names in (("points", self.points), ("outputs", self.outputs)):
            wrong = list(inspect_tuple(field, names, str))
            yield from wrong
            if not wrong and not names:
                yield f"{field} is empty: name at least one"
            elif not wrong and len(set(names)) != len(names):
                yield f"{field} names something twice: {names}"
        yield from inspect_function("stored", self.stored, "params -> the points that are rounded")
        yield from inspect_function("model", self.model, "(tensors, params, rounded) -> outputs")
        wrong = list(inspect_names("public", self.public, "points"))
        yield from wrong
        for name in () if wrong else sorted(self.public - set(self.points)):
            yield f"public names {name!r}, which is none of the points {', '.join(self.points)}"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A check that the harness cannot run on this kernel on a family of lanes.

    `because` says why, `reproduction` is the path or link of something that shows it.
    """

    lane: str
    check: str
    because: str
    reproduction: str

    def __post_init__(self) -> None:
        """SpecError for an unknown lane, or without a reason and a reproduction."""
        reject(f"Limit on {self.check!r}", self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        yield from _inspect_families("lane", (self.lane,))
        yield from inspect_text("check", self.check, "the name of a check")
        yield from inspect_text("because", self.because, "the reason")
        yield from inspect_text("reproduction", self.reproduction, "where a reproduction lies")


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Inputs outside the contract, which the launcher has to refuse by an exception that the spec documents.

    `name` says what is wrong with them: "q in fp64". `spoil` makes them from the inputs of `case`, which the
    contract allows, and leaves those as they are. Agreement judges them after `case` itself.
    """

    name: str
    case: Case
    spoil: Callable[[Inputs], Inputs]

    def __post_init__(self) -> None:
        """SpecError for a refusal without a name or without its function."""
        where = f"Refusal {self.name!r}"
        reject(where, inspect_text("name", self.name, "what is wrong with the inputs"))
        reject(where, inspect_function("spoil", self.spoil, "inputs -> inputs"))


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A hazard in targets' code (see `HAZARDS`) that is known, and why it does no harm.

    targets      those it is accepted of, all where none are named; it need not show under every Triton
    conversions  of a hazard of conversions: those it is accepted of, such as "fp32 to e4m3", and on how
                 many of the inputs that decide each may be wrong; another one, or more, is not accepted
    on_grid      whether every value so converted is a value of the target format already (or NaN), so
                 that nothing is left to round: `memory` on the interpreter lane reports one that is not
    """

    hazard: str
    because: str
    targets: tuple[str, ...] = ()
    conversions: Mapping[str, int] = dataclasses.field(default_factory=dict)
    on_grid: bool = False

    def __post_init__(self) -> None:
        """SpecError for an unknown hazard, target or conversion, or without a reason."""
        where = f"Accepted {self.hazard!r}"
        reject(where, inspect_choice("hazard", self.hazard, HAZARDS))
        reject(where, inspect_text("because", self.because, "the reason why it does no harm"))
        reject(where, inspect_choices("targets", self.targets, TARGETS))
        reject(where, self._misnamed_conversions())

    def _misnamed_conversions(self) -> Iterator[str]:
        such = '{"fp32 to e4m3": 126}'
        if not isinstance(self.conversions, Mapping):
            yield f"conversions must be a dict such as {such}, got {show(self.conversions)}"
        elif not self.conversions and (self.on_grid or self.hazard in CONVERTING):
            yield (
                "conversions is empty: name those that it is accepted of, and on how many inputs each is "
                f"wrong as `bitproof lowering` counts them, such as {such}"
            )
        else:
            for name, wrong in self.conversions.items():
                formats = re.fullmatch(_CONVERSIONS, name) if isinstance(name, str) else None
                if formats is None:
                    known = ", ".join(FORMATS)
                    yield f"conversions names {name!r}: write FORMAT to FORMAT, of {known}"
                yield from inspect_count(f"conversions[{name!r}]", wrong, 0)

    def covers(self, hazard: str, target: str, conversion: str, wrong: int) -> bool:
        """Whether this accepts `hazard` in `target`'s code; `conversion` is "" where none shows it."""
        if hazard != self.hazard or target not in (self.targets or (target,)):
            return False
        if not self.conversions:
            return True
        return wrong <= self.conversions.get(conversion, -1)


@dataclass(frozen=True, kw_only=True)
class Lowering:
    """What is declared of the code that compilers make of a kernel; `bitproof lowering` goes by it.

    supports  targets, such as "sm_89", for which it must compile; others may refuse it
    alone     whether it is for no others: the property suite then reads nothing for them
    products  formats that operands of a product may be rounded to, such as "tf32", beyond their own
    accepted  hazards that are known and do no harm
    most      specialisations of one kernel function that are compiled at most: it bounds the time, and the
              first few, chosen as they are, show nearly everything
    slow      whether that takes minutes all the same: the property suite then reads it at night alone,
              or where the kernel is named
    """

    supports: tuple[str, ...] = ()
    alone: bool = False
    products: tuple[str, ...] = ()
    accepted: tuple[Accepted, ...] = ()
    most: int = 8
    slow: bool = False

    def __post_init__(self) -> None:
        """SpecError for an unknown target, or for a kernel that is for none."""
        reject("Lowering", self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        yield from inspect_choices("supports", self.supports, TARGETS)
        if self.alone and not self.supports:
            yield "alone says that it is for no target at all: name in supports those it is for"
        yield from inspect_tuple("products", self.products, str)
        yield from inspect_tuple("accepted", self.accepted, Accepted)
        yield from inspect_count("most", self.most, 1)


def _inspect_families(field: str, names: Any) -> Iterator[str]:
    """`names` must be families of lanes; a lane for one target is told what family it is of."""
    wrong = list(inspect_tuple(field, names, str))
    yield from wrong
    for name in () if wrong else names:
        if name not in LANES and family(name) in LANES:
            yield (
                f"{field} names {name!r}, the lane of one target: write {family(name)!r}, which stands "
                "for all lanes of that family"
            )
        else:
            yield from inspect_choice(field, name, LANES)
