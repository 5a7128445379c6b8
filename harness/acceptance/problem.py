"""What a candidate is held against: a reference, the cases around its example, its answers and bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from bitproof.harness.acceptance.around import LISTED, Around, AroundCase, draw_around
from bitproof.harness.acceptance.loading import REFERENCE, Source, example_of, load
from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs, build
from bitproof.harness.errors import SpecError, UsageError
from bitproof.harness.inputs import cases_of
from bitproof.harness.lanes.base import parameters
from bitproof.harness.outcomes import CheckResult, Outcome, conclude
from bitproof.harness.references import (
    Operands,
    Reference,
    ReferenceBound,
    declared_types,
    find_looseness,
    make_bound,
    make_oracle,
)
from bitproof.harness.report import compare
from bitproof.harness.spec import KernelSpec, Varies

# Samples by which a bound's looseness is judged: more would only let it pass more.
_LOOSE = 4


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A reference with its cases.

    spec       the same as a spec, whose launcher is elsewhere: its oracle, bounds, types and cases
    around     the cases
    arguments  what a model is built of
    state      its weights by name
    names      what a call takes, in order
    inplace    the inputs that the reference itself writes
    """

    source: Source
    spec: KernelSpec
    around: Around
    bound: ReferenceBound
    arguments: list[Any]
    state: Mapping[str, Tensor]
    names: tuple[str, ...]
    on_card: bool
    inplace: frozenset[str] = frozenset()

    def with_fixed(self, lengths: Mapping[int, str]) -> Problem:
        """The same problem with dimensions of those lengths kept as listed, and why."""
        device = torch.device("cuda" if self.on_card else "cpu")
        return make_problem(
            self.source.reference, device, operands=self.bound.operands, fixed=lengths
        )

    @cached_property
    def corners(self) -> tuple[AroundCase, ...]:
        """Each kind of values once; first the listed sizes, where a CPU computes those in a moment."""
        tensors = build(self.around.listed, torch.device("cpu")).tensors.values()
        small = sum(tensor.numel() for tensor in tensors) <= LISTED
        return tuple(self.around.corners(small or self.on_card))

    def judge(self, outputs: Mapping[str, Tensor], inputs: Inputs) -> CheckResult:
        """Outputs against the answer; not demonstrated where the reference or its bound says nothing."""
        findings, worst = compare.against_oracle(self.spec, outputs, inputs)
        silent = self._find_silence(outputs, inputs, wrong=bool(findings))
        if silent:
            return CheckResult(outcome=Outcome.NOT_DEMONSTRATED, reason=silent)
        return conclude(findings, worst=worst)

    def _find_silence(self, outputs: Mapping[str, Tensor], inputs: Inputs, *, wrong: bool) -> str:
        """Why these inputs tell nothing; "" where they do.

        A reference that leaves the range of its own types says nothing of what is right there. Of outputs
        that are inside the bound, one has to have a bound that is not too wide.
        """
        answers = compare.fetch(self.spec.oracle(inputs.tensors, parameters(inputs)))
        got = compare.fetch({name: one for name, one in outputs.items() if name in answers})
        loose = []
        for name in got if all(got[name].shape == answers[name].shape for name in got) else ():
            at = self.bound.at(name, inputs.tensors, parameters(inputs))
            if at.overflows(answers[name], got[name].dtype):
                return "the reference leaves the range of the types that it declares"
            if not wrong and got[name].size:
                loose.append(
                    find_looseness(at.with_samples(_LOOSE), answers[name], got[name].dtype)
                )
        if not wrong and not loose:
            return "its outputs are empty"
        return "" if wrong or not all(loose) else loose[0]


def make_problem(
    reference: str,
    device: torch.device,
    *,
    operands: Operands = "declared",
    fixed: Mapping[int, str] | None = None,
) -> Problem:
    """The problem that a reference's file poses on `device`; `fixed` are lengths that stay, and why.

    Raises UsageError where the file does not offer what is needed, SpecError where the reference raises on
    its own example.
    """
    source = load(reference, REFERENCE)
    tensors, params, arguments = example_of(source)
    called = source.build(arguments, device)
    state = dict(called.state_dict()) if isinstance(called, nn.Module) else {}
    function = Reference(function=called)
    oracle, types = make_oracle(function), declared_types(function)
    plain = {name: value for name, value in params.items() if _is_plain(value)}
    if plain.keys() != params.keys():
        odd = sorted(params.keys() - plain.keys())[0]
        raise UsageError(f"{reference}: its input {odd!r} is neither a tensor nor a plain value")
    example = {name: tensor.to(device) for name, tensor in tensors.items()}

    def accepts(case: AroundCase) -> bool:
        inputs = build(case, device)
        try:
            answers = oracle(inputs.tensors, parameters(inputs))
        except SpecError:
            return False
        # Of nothing, a mean is no number: such an answer says nothing.
        hollow = any(not tensor.numel() for tensor in inputs.tensors.values())
        return not hollow or all(bool(answer.isfinite().all()) for answer in answers.values())

    lengths = {
        n: f"the weights of {source.declared.__name__} have it"
        for t in state.values()
        for n in t.shape
    }
    lengths |= {n: "an argument of the model is it" for n in arguments if type(n) is int}
    lengths |= {n: "a parameter is it" for n in plain.values() if type(n) is int}
    around = draw_around(tensors, plain, {**(fixed or {}), **lengths}, accepts)
    declared = types(example, plain)
    bound = make_bound(function, operands=operands)
    spec = KernelSpec(
        name="candidate",
        run=_elsewhere,
        case=around.case,
        cases=cases_of(around.case) if around.sizes else (lambda: st.just(around.listed)),
        oracle=oracle,
        bounds=dict.fromkeys(declared, bound),
        dtypes=types,
        faults=(),
        reproducible=Varies(because="it is judged elsewhere"),
    )
    names = tuple(name for name in source.signature.parameters if name in {*tensors, *plain})
    small = build(around.simplest(), device)
    return Problem(
        source=source,
        spec=spec,
        on_card=device.type == "cuda",
        around=around,
        bound=bound,
        arguments=arguments,
        state={name: tensor.cpu() for name, tensor in state.items()},
        names=names,
        inplace=_find_written(called, names, {**parameters(small), **small.tensors}),
    )


def _find_written(
    called: Callable[..., Any], names: Sequence[str], values: Mapping[str, Any]
) -> frozenset[str]:
    """The tensors that a call changes."""
    given = {
        name: value.clone() if isinstance(value, Tensor) else value
        for name, value in values.items()
    }
    with torch.no_grad():
        called(*(given[name] for name in names))
    return frozenset(
        name
        for name in names
        if isinstance(values[name], Tensor)
        and not torch.equal(bits(given[name]), bits(values[name]))
    )


def _elsewhere(tensors: Any, params: Any) -> dict[str, Tensor]:
    raise AssertionError("a candidate runs in a process of its own")


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))
