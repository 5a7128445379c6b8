"""Relations of the gated delta rule on several ranks that hold bit for bit.

`kernels.delta.invariances` has those that ranks change nothing of.
"""

from __future__ import annotations

import dataclasses
import itertools

import torch
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.case import Inputs
from bitproof.harness.spec import Invariance, Tensors
from bitproof.kernels.delta.packing import STATES, SUMS, Part, lengths, whole
from bitproof.kernels.delta.ranks.partition import Share, partition

_OF_KEY_HEADS = ("dq", "dk")


def ranks_reordered() -> Invariance:
    """Ranks that work and reach each exchange in another order give the same.

    Applies where a sequence is cut.
    """

    def transform(inputs: Inputs) -> Inputs | None:
        shares = _shares(inputs)
        if not any(share.pre for share in shares):
            return None
        return _with(inputs, order=tuple(reversed(range(len(shares)))))

    return Invariance(
        name="the ranks in another order", transform=transform, relate=lambda found, inputs: found
    )


def one_rank_for_all() -> Invariance:
    """Where no sequence is cut, several ranks give what one gives; sums over all tokens apart.

    Applies from two ranks on.
    """

    def transform(inputs: Inputs) -> Inputs | None:
        shares = _shares(inputs)
        cut = any(share.pre or share.post for share in shares)
        return None if cut or len(shares) == 1 else _with(inputs, ranks=1)

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {name: tensor for name, tensor in found.items() if name not in SUMS}

    return Invariance(name="one rank for all", transform=transform, relate=relate)


def others_silenced() -> Invariance:
    """A sequence's rows and states do not depend on the values of the others, which share its ranks.

    Where the others write nothing from states of zero (or have gradients of zero), their outputs are zero, of
    either sign, and the sequence's own are as before. Sums over all tokens apart. Applies where others
    stand beside one that has tokens.
    """

    def chosen(inputs: Inputs) -> Part:
        able = [n for n, length in enumerate(lengths(inputs)) if length]
        return whole(inputs, able[generators.pick(inputs.seed, len(able))])

    def alone(tensor: Tensor, kept: Tensor | int) -> Tensor:
        silenced = torch.zeros_like(tensor)
        silenced[kept] = tensor[kept]
        return silenced

    def transform(inputs: Inputs) -> Inputs | None:
        if sum(size > 0 for size in lengths(inputs)) < 2:
            return None
        sequence, rows = chosen(inputs)
        tokens, states = ("do", "dht") if "do" in inputs.tensors else ("v", "initial_state")
        changed = {tokens: alone(inputs.tensors[tokens], rows)}
        if states in inputs.tensors:
            changed[states] = alone(inputs.tensors[states], sequence)
        return inputs.replace(**changed)

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        sequence, rows = chosen(inputs)
        return {
            name: alone(tensor, sequence if name in STATES else rows)
            for name, tensor in found.items()
            if name not in SUMS
        }

    return Invariance(
        name="the other sequences silenced",
        transform=transform,
        relate=relate,
        signed_zeros=False,
    )


def program(output: str, index: tuple[int, ...], inputs: Inputs) -> str:
    """Which rank's programs an element is the work of, for reports."""
    if output in SUMS:
        return f"the programs of value head {index[0]} on every rank"
    head = f"{'head' if output in _OF_KEY_HEADS else 'value head'} {index[1]}"
    if output not in STATES:
        share = next(share for share in _shares(inputs) if share.first <= index[0] < share.end)
        row = index[0] - share.first
        for sequence, (start, stop) in zip(
            share.sequences, itertools.pairwise(share.offsets), strict=False
        ):
            if start <= row < stop:
                return (
                    f"the programs of rank {share.rank}, its row {row}, sequence {sequence}, {head}"
                )
        return f"the programs of rank {share.rank}, its slack rows, {head}"
    return f"the programs of sequence {index[0]}, {head}"


def _shares(inputs: Inputs) -> tuple[Share, ...]:
    offsets = inputs.tensors["cu_seqlens"].tolist()
    return partition(offsets, len(inputs.tensors["q"]), inputs.params["ranks"])


def _with(inputs: Inputs, **params: object) -> Inputs:
    return dataclasses.replace(inputs, params={**inputs.params, **params}, case=None)
