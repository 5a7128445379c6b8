"""How a reference is called by names: its arguments, its outputs, and the gradients asked of it."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bitproof.harness.errors import SpecError, describe
from bitproof.harness.references.lifting import Arithmetic, Declared, Interposition

Tensors = Mapping[str, Tensor]
Params = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A torch function or module that says what outputs must be.

    function   takes tensors and parameters by their names; it need not take all of them. A tensor that is
               named as a parameter or buffer of a module stands in for it
    outputs    names for what it returns, a tensor or a tuple; a dict names its own. A single tensor is
               called "output" unless named, the parts of a tuple "output0", "output1", ...
    gradients  for an output that is a gradient, the input that it belongs to: {"dx": "x"}
    upstream   for an output, the input that holds the gradient which arrives at it: {"y": "dy"}
    """

    function: Callable[..., Any]
    outputs: Sequence[str] = ()
    gradients: Mapping[str, str] = field(default_factory=dict)
    upstream: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The function's name, or its module's."""
        return getattr(self.function, "__name__", type(self.function).__name__)


def evaluate(
    reference: Reference, arithmetic: Arithmetic, tensors: Tensors, params: Params
) -> dict[str, Tensor]:
    """The outputs and gradients by name: `Declared`, or plain integers and booleans.

    Raises SpecError, which says where, for whatever the reference raises.
    """
    mode = Interposition(arithmetic)
    lifted = {name: mode.lift(tensor) for name, tensor in tensors.items()}
    weights = {name: lifted.get(name, tensor) for name, tensor in held_by(reference.function)}
    weights = {name: mode.lift(tensor) for name, tensor in weights.items()}
    for name in reference.gradients.values():
        if name not in lifted:
            raise _unfit(reference, f"a gradient is asked for {name!r}, which is no input")
        lifted[name].requires_grad_()
    asked = torch.enable_grad() if reference.gradients else torch.no_grad()
    try:
        with _as_written(), asked, mode:
            outputs = name_outputs(reference, call(reference, weights, {**params, **lifted}))
            gradients = differentiate(reference, outputs, lifted) if reference.gradients else {}
            return {name: tensor.detach() for name, tensor in (outputs | gradients).items()}
    except SpecError:
        raise
    except Exception as error:
        raise _unfit(reference, f"it raised {describe(error)}") from error


@contextlib.contextmanager
def _as_written() -> Iterator[None]:
    """The reference's own operations: nothing compiled, no fused attention, the same random numbers."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=()))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(_half_attention())
        if (
            "torch._dynamo" in sys.modules
        ):  # else nothing was compiled, and loading it takes seconds
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        torch.manual_seed(0)
        yield


@contextlib.contextmanager
def _half_attention() -> Iterator[None]:
    """Attention in the type that it declares: fused kernels round probabilities to it, torch's own do too."""
    flags: Any = torch.backends.cuda  # whose functions have no types
    earlier = flags.fp16_bf16_reduction_math_sdp_allowed()
    flags.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        yield
    finally:
        flags.allow_fp16_bf16_reduction_math_sdp(earlier)


def held_by(function: Callable[..., Any]) -> list[tuple[str, Tensor]]:
    """The parameters and buffers of a module by name."""
    if not isinstance(function, nn.Module):
        return []
    return [*function.named_parameters(), *function.named_buffers()]


def call(reference: Reference, weights: Tensors, values: Mapping[str, Any]) -> Any:
    """What it returns of the values that it takes, a module with those weights; SpecError for one too few."""
    function = reference.function
    if not isinstance(function, nn.Module):
        return function(**_select(reference, function, values))
    arguments = _select(reference, function.forward, values)
    return torch.func.functional_call(function, dict(weights), kwargs=arguments)


def _select(
    reference: Reference, function: Callable[..., Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """What the function takes of the values; SpecError where it needs one that is not there."""
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return {name: value for name, value in values.items() if name != "launch"}
    for one in parameters:
        needed = one.default is inspect.Parameter.empty
        if needed and one.name not in values and one.kind is not inspect.Parameter.VAR_POSITIONAL:
            known = ", ".join(sorted(values))
            raise _unfit(
                reference,
                f"it takes {one.name!r}, which no input has for a name: there are {known}",
            )
    return {one.name: values[one.name] for one in parameters if one.name in values}


def name_outputs(reference: Reference, returned: Any) -> dict[str, Tensor]:
    """What it returned by name; SpecError for another number of parts, and for what is no tensor."""
    if isinstance(returned, Mapping):
        named = dict(returned)
    else:
        parts = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        names = list(reference.outputs) or (
            [f"output{place}" for place in range(len(parts))] if len(parts) > 1 else ["output"]
        )
        if len(names) != len(parts):
            raise _unfit(
                reference, f"it returns {len(parts)} outputs, but names are given for {len(names)}"
            )
        named = dict(zip(names, parts, strict=True))
    for name, tensor in named.items():
        if not isinstance(tensor, Tensor):
            raise _unfit(reference, f"its output {name!r} is {type(tensor).__name__}, not a tensor")
    return named


def differentiate(
    reference: Reference, outputs: Mapping[str, Tensor], lifted: Tensors
) -> dict[str, Tensor]:
    """The gradients by output; those of inputs that no output depends on are 0."""
    arriving = {name: lifted[source] for name, source in reference.upstream.items()}
    if not arriving:
        raise _unfit(reference, "gradients are asked, but upstream names no gradient that arrives")
    strangers = sorted(set(arriving) - set(outputs))
    if strangers:
        raise _unfit(reference, f"upstream names {strangers[0]!r}, which is none of its outputs")
    inputs = [lifted[name] for name in reference.gradients.values()]
    found = torch.autograd.grad(
        [outputs[name] for name in arriving],
        inputs,
        [gradient.to(outputs[name].dtype) for name, gradient in arriving.items()],
        allow_unused=True,
    )
    return {
        name: torch.zeros_like(source).detach() if gradient is None else gradient.detach()
        for name, gradient, source in zip(reference.gradients, found, inputs, strict=True)
    }


def numbers(tensor: Tensor) -> Tensor:
    """The float64 numbers of a `Declared` output, complex ones as pairs; other tensors as they are."""
    value = tensor.value if isinstance(tensor, Declared) else tensor
    return torch.view_as_real(value) if value.is_complex() else value


def _unfit(reference: Reference, what: str) -> SpecError:
    return SpecError(f"the reference {reference.name!r}: {what}")
