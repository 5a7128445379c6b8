"""A contract: what is known of an operation, whoever computes it. A `KernelSpec` holds a subject against it.

The inputs are declared once (`harness.inputs`), and their cases, the strategy, layouts and the check of
captured tensors follow from them; or `case` and `cases` are written by hand. What the answer is says an
oracle, or a reference in torch. Any number of subjects can be held against one contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from hypothesis.strategies import SearchStrategy

from bitproof.harness.bounds import Bound
from bitproof.harness.case import Case, build
from bitproof.harness.declarations import (
    Elementwise,
    Invariance,
    Params,
    Refusal,
    Storage,
    Tensors,
)
from bitproof.harness.errors import SpecError
from bitproof.harness.fields import reject, show
from bitproof.harness.inputs import (
    BLOCKS,
    Declaration,
    DeclaredCase,
    Input,
    Parameter,
    Size,
    case_of,
    cases_of,
    find_contradictions,
)
from bitproof.harness.layouts import Layout, Sharing
from bitproof.harness.references import Reference, make_bound, make_oracle


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What is known of an operation. A spec that names it takes from it whatever it does not say itself.

    name         what specs are called that do not give themselves another name
    inputs       each tensor of the launcher by name: `Tensor`, `Index` or `Offsets`
    params       each plain parameter by name: `Choice`, `Integer`, `Real`, or a value that it always has
    sizes        ranges of dimensions, where those that follow from the inputs do not suit
    case, cases  a case written by hand, and its strategy, in place of inputs, params and sizes
    oracle       (tensors, params) -> the expected outputs, exact bits or float64; never runs Triton
    reference    in its place a torch function or module, or a `Reference`, which takes tensors and parameters
                 by their names: it is run in float64, and its bound is what it may lose itself
    outputs      for each output, how far it may be from the oracle and why. Of a reference the names of what
                 it returns suffice, or none at all where it returns a dict; None stands for its own bound

    The other fields are those of a `KernelSpec`, where they are described.
    """

    name: str
    inputs: Mapping[str, Input] = field(default_factory=dict)
    params: Mapping[str, Parameter] = field(default_factory=dict)
    sizes: Mapping[str, Size] = field(default_factory=dict)
    case: type[Case] | None = None
    cases: Callable[..., SearchStrategy[Any]] | None = None
    oracle: Callable[[Tensors, Params], Mapping[str, Any]] | None = None
    reference: Callable[..., Any] | Reference | None = None
    outputs: Mapping[str, Bound | None] | tuple[str, ...] = ()
    dtypes: Callable[[Tensors, Params], Mapping[str, torch.dtype]] | None = None
    invariances: tuple[Invariance, ...] = ()
    strided: frozenset[str] = frozenset()
    layouts: Mapping[str, tuple[Layout, ...]] = field(default_factory=dict)
    shared: Mapping[tuple[str, ...], tuple[Sharing, ...]] = field(default_factory=dict)
    vast: frozenset[str] = frozenset()
    inplace: frozenset[str] = frozenset()
    corners: tuple[Case, ...] = ()
    refuses: tuple[type[Exception], ...] = ()
    refusals: tuple[Refusal, ...] = ()
    unwritten: Callable[[Params], frozenset[str]] | None = None
    elementwise: Elementwise | None = None
    storage: Storage | None = None

    @cached_property
    def declaration(self) -> Declaration | None:
        """The inputs as they were declared; None for a case that was written by hand."""
        if self.case is not None or self.cases is not None:
            return None
        return Declaration(name=self.name, inputs=self.inputs, params=self.params, sizes=self.sizes)

    def mistakes(self) -> Iterator[str]:
        """What its parts say against each other, a sentence each."""
        if self.oracle is not None and self.reference is not None:
            yield "oracle and reference say the same thing twice: leave one of the two out"
        if self.reference is None and not isinstance(self.outputs, Mapping) and self.outputs:
            yield "outputs must be a dict with a bound for each output where there is no reference"
        yield from self._misdeclared()

    def _misdeclared(self) -> Iterator[str]:
        if self.declaration is not None:
            yield from find_contradictions(self.declaration)
        elif self.case is None or self.cases is None:
            missing = "case" if self.case is None else "cases"
            yield f"{missing} is missing: a case written by hand is both a dataclass and a strategy"
        elif self.inputs or self.params or self.sizes:
            yield "inputs and case say the same thing twice: leave one of the two out"

    @cached_property
    def case_type(self) -> type[Case] | None:
        """The dataclass of its cases; None where there is none because of a mistake."""
        if self.declaration is None or any(True for _ in self._misdeclared()):
            return self.case
        return case_of(self.declaration)

    @cached_property
    def _reference(self) -> Reference | None:
        """The reference with the names of its outputs."""
        if self.reference is None or isinstance(self.reference, Reference):
            return self.reference
        return Reference(function=self.reference, outputs=tuple(self.outputs))

    @cached_property
    def answer(self) -> Callable[[Tensors, Params], Mapping[str, Any]] | None:
        """The oracle, or the one that the reference is; None where there is neither."""
        return make_oracle(self._reference) if self._reference is not None else self.oracle

    @cached_property
    def bounds(self) -> Mapping[str, Any]:
        """The bound of each output; of a reference that names none, they are those of its simplest case.

        Empty where that case has none.
        """
        reference = self._reference
        if reference is None:
            return self.outputs if isinstance(self.outputs, Mapping) else {}
        derived = make_bound(reference)
        said = self.outputs if isinstance(self.outputs, Mapping) else {}
        names = (*self.outputs, *reference.outputs, *reference.gradients) or self._answered()
        return {name: said.get(name) or derived for name in dict.fromkeys(names)}

    def _answered(self) -> tuple[str, ...]:
        """The outputs of the simplest case: what keeps it from having any is told when it is judged."""
        assert self.answer is not None
        try:
            inputs = build(self.simplest(), torch.device("cpu"))
            answers = self.answer(inputs.tensors, {**inputs.params, "launch": inputs.launch})
        except SpecError:
            return ()
        return tuple(answers)

    def fields(self, blocks: tuple[int, ...] = BLOCKS, *, warm: bool = False) -> dict[str, Any]:
        """What it says of a spec's fields, by their names.

        `blocks` are the tile sizes of the subject, `warm` says that it is an object that is called often.
        """
        case = self.case_type
        said: dict[str, Any] = {
            "name": self.name,
            "case": case,
            "cases": self.cases,
            "oracle": self.answer,
            "bounds": self.bounds,
            "dtypes": self.dtypes,
            "invariances": self.invariances,
            "strided": self.strided,
            "layouts": self.layouts,
            "shared": self.shared,
            "vast": self.vast,
            "inplace": self.inplace,
            "corners": self.corners,
            "refuses": self.refuses,
            "refusals": self.refusals,
            "unwritten": self.unwritten,
            "elementwise": self.elementwise,
            "storage": self.storage,
        }
        if isinstance(case, type) and issubclass(case, DeclaredCase):
            declared = case.declaration
            said["cases"] = cases_of(case, blocks, warm=warm)
            said["strided"] = self.strided | declared.strided()
            said["layouts"] = {**declared.layouts(), **self.layouts}
            said["inplace"] = self.inplace | declared.inplace()
        return said

    def simplest(self) -> Case:
        """The case that a failure shrinks toward; SpecError where its inputs contradict each other."""
        reject(f"contract {self.name!r}", self.mistakes())
        assert self.case_type is not None
        try:
            return self.case_type()
        except TypeError as error:
            raise SpecError(
                f"contract {self.name!r}: {show(self.case_type)} has no simplest case: {error}"
            ) from error
