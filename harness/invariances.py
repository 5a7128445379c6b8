"""Relations between two runs that hold bit for bit, for a spec's `invariances`.

Each function returns an `Invariance` and says where it applies. If a relation must choose something (a row,
an order), it chooses by the inputs' seed, so that a replay makes the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.bits import bits
from bitproof.harness.case import Inputs
from bitproof.harness.spec import Invariance, Tensors
from bitproof.oracles import formats


def row_alone(tensors: Sequence[str], outputs: Sequence[str]) -> Invariance:
    """A row of `tensors` (first axis) alone gives the same row of `outputs` as in the batch.

    Applies to two or more rows.
    """

    def chosen(inputs: Inputs) -> slice:
        row = generators.pick(inputs.seed, len(inputs.tensors[tensors[0]]))
        return slice(row, row + 1)

    def transform(inputs: Inputs) -> Inputs | None:
        if len(inputs.tensors[tensors[0]]) < 2:
            return None
        return inputs.replace(**{name: inputs.tensors[name][chosen(inputs)] for name in tensors})

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {name: found[name][chosen(inputs)] for name in outputs}

    return Invariance(name="one row alone", transform=transform, relate=relate)


def rows_permuted(
    tensors: Sequence[str], outputs: Sequence[str], unmoved: Sequence[str] = ()
) -> Invariance:
    """The rows of `tensors` in another order give the rows of `outputs` in that order.

    Outputs named in `unmoved` do not depend on the order. Applies to two or more rows.
    """

    def order(inputs: Inputs) -> Tensor:
        first = inputs.tensors[tensors[0]]
        return generators.permutation(inputs.seed, len(first), first.device)

    def transform(inputs: Inputs) -> Inputs | None:
        if len(inputs.tensors[tensors[0]]) < 2:
            return None
        rows = order(inputs)
        return inputs.replace(**{name: _rows(inputs.tensors[name], rows) for name in tensors})

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        rows = order(inputs)
        moved = {name: _rows(found[name], rows) for name in outputs}
        return {**moved, **{name: found[name] for name in unmoved}}

    return Invariance(name="the rows in another order", transform=transform, relate=relate)


def _rows(tensor: Tensor, order: Tensor) -> Tensor:
    """The rows in that order, moved as integers because torch cannot index every type."""
    return bits(tensor)[order].view(tensor.dtype)


def negated(
    tensors: Sequence[str],
    outputs: Sequence[str],
    *,
    same: Sequence[str] = (),
    packed: Mapping[str, int] = MappingProxyType({}),
) -> Invariance:
    """Flipping the sign bit of every element of `tensors` flips that of every element of `outputs`.

    Outputs in `same` do not change. `packed` maps an output whose elements hold several codes to the mask of
    their sign bits. Applies to finite values, because the sign of a NaN has no meaning.
    """

    def transform(inputs: Inputs) -> Inputs | None:
        changed = {}
        for name in tensors:
            tensor = inputs.tensors[name]
            if not bool(torch.isfinite(tensor).all()):
                return None
            changed[name] = _flip(tensor, _sign(tensor))
        return inputs.replace(**changed)

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        masks = {**{name: _sign(found[name]) for name in outputs}, **packed}
        turned = {name: _flip(found[name], mask) for name, mask in masks.items()}
        return {**turned, **{name: found[name] for name in same}}

    return Invariance(name="the signs flipped", transform=transform, relate=relate)


def _sign(tensor: Tensor) -> int:
    """The sign bit of the tensor's type, as a number of the integer type that holds its bits."""
    return 0x80 if tensor.element_size() == 1 else torch.iinfo(bits(tensor).dtype).min


def _flip(tensor: Tensor, mask: int) -> Tensor:
    return (bits(tensor) ^ mask).view(tensor.dtype)


def scaled(
    tensor: str,
    same: Sequence[str],
    moved: Mapping[str, Callable[[Tensor, int], Tensor]],
    *,
    along: Sequence[str] = (),
    steps: int = 3,
) -> Invariance:
    """`tensor` times 2^steps: outputs in `same` do not change, those in `moved` as their function says.

    Tensors in `along`, all positive, are multiplied too. Each function maps the first run's output and
    `steps` to the second run's output. Applies where every nonzero magnitude is between 2^-10 and 2^10, far
    from where a quantiser's floor or saturation begins.
    """

    def transform(inputs: Inputs) -> Inputs | None:
        scaled = (tensor, *along)
        if not all(bool(_plain(inputs.tensors[name]).all()) for name in scaled):
            return None
        return inputs.replace(**{name: inputs.tensors[name] * 2.0**steps for name in scaled})

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        shifted = {name: move(found[name], steps) for name, move in moved.items()}
        return {**shifted, **{name: found[name] for name in same}}

    return Invariance(name=f"times 2^{steps}", transform=transform, relate=relate)


def _plain(x: Tensor) -> Tensor:
    magnitude = x.abs()
    return (magnitude >= 2.0**-10) & (magnitude <= 2.0**10) | (magnitude == 0)


def widened(tensors: Sequence[str], outputs: Sequence[str], to: torch.dtype) -> Invariance:
    """Converting `tensors` to the wider type `to` outside of a kernel gives what widening them inside gives.

    For a kernel that converts its operands to `to` before it uses them: no value changes, so no bit may. It
    may in a product, whose order of k depends on the type that operands were loaded in. Applies where each
    of `tensors` is of a narrower type whose every number `to` holds.
    """

    def transform(inputs: Inputs) -> Inputs | None:
        given = {name: inputs.tensors[name] for name in tensors}
        if not all(_holds_all(to, tensor.dtype) for tensor in given.values()):
            return None
        return inputs.replace(**{name: tensor.to(to) for name, tensor in given.items()})

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {name: found[name] for name in outputs}

    return Invariance(name="operands widened outside", transform=transform, relate=relate)


def _holds_all(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """Whether each number of the float type `narrow` is one of `wide`, another type."""
    if not (wide.is_floating_point and narrow.is_floating_point) or wide == narrow:
        return False
    one, other = torch.finfo(wide), torch.finfo(narrow)
    finest = one.tiny * one.eps <= other.tiny * other.eps  # the smallest subnormals
    return one.eps <= other.eps and one.max >= other.max and finest


def monotone(tensor: str, output: str) -> Invariance:
    """Sorting an elementwise kernel's input sorts its output: a larger value never rounds lower.

    -0 counts as below +0. Applies where nothing is NaN.
    """

    def transform(inputs: Inputs) -> Inputs | None:
        x = inputs.tensors[tensor]
        if bool(torch.isnan(x).any()):
            return None
        return inputs.replace(**{tensor: _sort(x)})

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {output: _sort(found[output])}

    return Invariance(name="the input sorted", transform=transform, relate=relate)


def _sort(tensor: Tensor) -> Tensor:
    pattern = bits(tensor)
    width = 8 * tensor.element_size()
    magnitude = pattern.to(torch.int64) & ((1 << (width - 1)) - 1)
    negative = pattern.to(torch.int64) >> (width - 1) & 1 == 1
    order = torch.argsort(torch.where(negative, -magnitude - 1, magnitude), stable=True)
    return pattern[order].view(tensor.dtype)


def fixed_points(tensor: str, output: str, target: str) -> Invariance:
    """A value of the format `target` is converted to itself.

    `tensor` is replaced by finite values of the format, as many as it has elements. Applies where the input's
    type can hold all of them: any type for the 8-bit formats, fp32 for the others.
    """
    fmt = formats.by_name(target)
    dtype = fmt.torch_dtype
    assert dtype is not None

    def codes(inputs: Inputs) -> Tensor:
        x = inputs.tensors[tensor]
        words = generators.hash_words(inputs.seed, 0, x.numel(), x.device)
        magnitude = words % (fmt.largest_code + 1)
        code = magnitude | (words >> 31) * fmt.sign_bit
        integers = torch.uint8 if fmt.bits == 8 else torch.int16
        return code.to(integers).view(dtype).reshape(x.shape)

    def transform(inputs: Inputs) -> Inputs | None:
        x = inputs.tensors[tensor]
        if fmt.bits > 8 and x.dtype != torch.float32:
            return None
        return inputs.replace(**{tensor: codes(inputs).to(x.dtype)})

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {output: codes(inputs)}

    return Invariance(name=f"values of {target}", transform=transform, relate=relate)


def configurations_agree() -> Invariance:
    """An autotuned kernel gives the same bits in each of its configurations, whichever tuning chooses.

    Applies where a launch has a choice of them; those that early pruning leaves out are not run. A failure
    lists which configurations give equal bits.
    """
    return Invariance(
        name="every configuration",
        transform=lambda inputs: inputs,
        relate=lambda found, inputs: found,
        configured=True,
    )
