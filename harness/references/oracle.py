"""The oracle that a torch reference is, once nothing that it declares rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from bitproof.harness.references.calling import Params, Reference, Tensors, evaluate, numbers
from bitproof.harness.references.sampling import Exact


def make_oracle(
    function: Callable[..., Any] | Reference,
) -> Callable[[Tensors, Params], dict[str, Tensor]]:
    """An oracle (tensors, params) -> answers by output, from a torch function or module.

    The reference runs in float64, on the device of the tensors, whatever types it casts to; `x.dtype` is what
    it declares. Tensors of 8 and 16 bits are decoded by `oracles.formats`. Answers are float64 (a complex
    one as pairs, as `torch.view_as_real` gives it); integers and booleans keep their types. Give a
    `Reference` to name outputs and to ask for gradients. The oracle raises SpecError where the reference
    raises, or takes what is not there.
    """
    reference = as_reference(function)

    def oracle(tensors: Tensors, params: Params) -> dict[str, Tensor]:
        answers = evaluate(reference, Exact(), tensors, params)
        return {name: numbers(answer) for name, answer in answers.items()}

    return oracle


def declared_types(
    function: Callable[..., Any] | Reference,
) -> Callable[[Tensors, Params], dict[str, Any]]:
    """(tensors, params) -> the torch type that the reference declares for each output: a spec's `dtypes`."""
    reference = as_reference(function)

    def types(tensors: Tensors, params: Params) -> dict[str, Any]:
        return {
            name: answer.dtype
            for name, answer in evaluate(reference, Exact(), tensors, params).items()
        }

    return types


def as_reference(function: Callable[..., Any] | Reference) -> Reference:
    """A `Reference` as it is, a function as one with nothing further said."""
    return function if isinstance(function, Reference) else Reference(function=function)
