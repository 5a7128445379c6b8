"""Relations of the gated delta rule that hold bit for bit, between runs on other packings and other inputs.

Tensors and outputs are those of `kernels.delta.arguments` and `kernels.delta.chunk_fwd`. Each function says
where its relation applies; what it has to choose (a sequence, a cut, an order) it takes from the inputs'
seed. Those about o apply to a forward pass, those about gradients to a backward pass, the others to both.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable

import torch
from torch import Tensor

from bitproof.harness import generators
from bitproof.harness.case import Inputs
from bitproof.harness.spec import Invariance, Tensors
from bitproof.kernels.delta.cases import CHUNK
from bitproof.kernels.delta.packing import (
    SEQUENCES,
    STATES,
    SUMS,
    Part,
    lengths,
    of_parts,
    repack,
    slack_rows,
    whole,
)

# Of value heads alone, and of q's.
_PARAMETERS = ("A_log", "dt_bias")
_OF_KEY_HEADS = ("q", "k", "dq", "dk")


def sequence_alone() -> Invariance:
    """A sequence alone gives the rows and the state that it gives among others.

    Applies where other sequences or slack rows stand beside one that has tokens.
    """

    def chosen(inputs: Inputs) -> list[Part]:
        return [whole(inputs, _longer_than(inputs, 0))]

    def transform(inputs: Inputs) -> Inputs | None:
        beside = len(lengths(inputs)) > 1 or slack_rows(inputs).numel() > 0
        return repack(inputs, chosen(inputs)) if beside and any(lengths(inputs)) else None

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return of_parts(found, chosen(inputs))

    return Invariance(name="one sequence alone", transform=transform, relate=relate)


def sequences_permuted() -> Invariance:
    """Sequences in another order, the slack rows last as before, permute rows and states.

    Applies from two sequences on.
    """

    def parts(inputs: Inputs) -> list[Part]:
        return [whole(inputs, n) for n in _order(inputs.seed, len(lengths(inputs)))]

    def transform(inputs: Inputs) -> Inputs | None:
        if len(lengths(inputs)) < 2:
            return None
        return repack(inputs, parts(inputs), slack_rows(inputs))

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return of_parts(found, parts(inputs), slack_rows(inputs))

    return Invariance(name="the sequences in another order", transform=transform, relate=relate)


def empty_sequence_inserted() -> Invariance:
    """One more sequence without tokens hands its state on and changes nothing else."""

    def place(inputs: Inputs) -> int:
        return generators.pick(inputs.seed, len(lengths(inputs)) + 1)

    def parts(inputs: Inputs) -> list[Part]:
        sequences = [whole(inputs, n) for n in range(len(lengths(inputs)))]
        sequences.insert(place(inputs), (0, slack_rows(inputs)[:0]))
        return sequences

    def transform(inputs: Inputs) -> Inputs:
        return repack(inputs, parts(inputs), slack_rows(inputs))

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        expected = of_parts(found, parts(inputs), slack_rows(inputs))
        for output, source in zip(STATES, SEQUENCES, strict=True):
            if output in expected:
                handed_on = inputs.tensors.get(source, torch.zeros_like(expected[output]))
                expected[output][place(inputs)] = handed_on[0]
        return {**expected, **{name: found[name] for name in SUMS if name in found}}

    return Invariance(name="an empty sequence more", transform=transform, relate=relate)


def heads_permuted() -> Invariance:
    """Heads in another order, with their value heads, states and gate parameters, permute every output.

    Applies from two heads of q and k on.
    """

    def orders(inputs: Inputs) -> tuple[Tensor, Tensor]:
        q, v = inputs.tensors["q"], inputs.tensors["v"]
        order = torch.tensor(_order(inputs.seed, q.shape[1]), device=q.device)
        groups = v.shape[1] // q.shape[1]
        values = order[:, None] * groups + torch.arange(groups, device=q.device)
        return order, values.flatten()

    def moved(tensors: Tensors, inputs: Inputs) -> dict[str, Tensor]:
        keys, values = orders(inputs)
        axes = dict.fromkeys((*_PARAMETERS, *SUMS), 0)
        return {
            name: tensor.index_select(axes.get(name, 1), keys if name in _OF_KEY_HEADS else values)
            for name, tensor in tensors.items()
            if name != "cu_seqlens"
        }

    def transform(inputs: Inputs) -> Inputs | None:
        if inputs.tensors["q"].shape[1] < 2:
            return None
        return inputs.replace(**moved(inputs.tensors, inputs))

    return Invariance(name="the heads in another order", transform=transform, relate=moved)


def split(step: int) -> Invariance:
    """A sequence cut in two, the second part begun with the first one's final state, is the whole.

    It is cut at a multiple of `step`. All runs are given initial states, zeros where the case has none, so
    that all are of one compiled variant. Applies where a sequence is longer than `step`.
    """

    def start(inputs: Inputs) -> Inputs | None:
        return give_initial_states(inputs) if max(lengths(inputs)) > step else None

    def parts(inputs: Inputs) -> tuple[Part, Part]:
        sequence, rows = whole(inputs, _longer_than(inputs, step))
        cut = step * (1 + generators.pick(inputs.seed + 1, (len(rows) - 1) // step))
        return (sequence, rows[:cut]), (sequence, rows[cut:])

    def transform(inputs: Inputs) -> Inputs | None:
        return repack(inputs, parts(inputs)[:1])

    def carry(found: Tensors, inputs: Inputs) -> Inputs:
        rest = repack(inputs, parts(inputs)[1:])
        return rest.replace(initial_state=found["final_state"])

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return of_parts(found, parts(inputs)[1:])

    return Invariance(
        name="a sequence in two runs",
        start=start,
        transform=transform,
        carry=carry,
        relate=relate,
    )


def give_initial_states(inputs: Inputs) -> Inputs:
    """The same call with initial states given, zeros where there were none."""
    tensors = inputs.tensors
    if "initial_state" in tensors:
        return inputs
    shape = (len(lengths(inputs)), *inner_shape(inputs))
    return inputs.replace(initial_state=tensors["q"].new_zeros(shape, dtype=torch.float32))


def inner_shape(inputs: Inputs) -> tuple[int, int, int]:
    """Of one sequence's state: (HV, K, V), or (HV, V, K)."""
    keys, values = inputs.tensors["q"].shape[2], inputs.tensors["v"].shape[2]
    heads = inputs.tensors["v"].shape[1]
    return (heads, values, keys) if inputs.params["state_v_first"] else (heads, keys, values)


def future_cut_off() -> Invariance:
    """o of a sequence's first tokens does not depend on those that follow.

    Applies where a sequence has two tokens.
    """

    def part(inputs: Inputs) -> Part:
        sequence, rows = whole(inputs, _longer_than(inputs, 1))
        return sequence, rows[: _cut(inputs, len(rows))]

    def transform(inputs: Inputs) -> Inputs | None:
        return repack(inputs, [part(inputs)]) if max(lengths(inputs)) > 1 else None

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {"o": found["o"][part(inputs)[1]]}

    return Invariance(name="the future cut off", transform=transform, relate=relate)


def gradients_of_a_prefix() -> Invariance:
    """Gradients of what a sequence's first tokens gave do not depend on the tokens that follow.

    Both runs have one sequence, whose later tokens and final state have gradients of zero, and which the
    second run does not have. A zero may have either sign: sums of such gradients do. Applies where a
    sequence has two tokens.
    """

    def start(inputs: Inputs) -> Inputs | None:
        if max(lengths(inputs)) < 2:
            return None
        begun = repack(inputs, [whole(inputs, _longer_than(inputs, 1))])
        do = begun.tensors["do"].clone()
        do[_cut(inputs, len(do)) :] = 0
        return begun.replace(do=do, dht=torch.zeros_like(begun.tensors["dht"]))

    def part(inputs: Inputs) -> Part:
        _, rows = whole(inputs, 0)
        return 0, rows[: _cut(inputs, len(rows))]

    def transform(inputs: Inputs) -> Inputs:
        return repack(inputs, [part(inputs)])

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return of_parts(found, [part(inputs)])

    return Invariance(
        name="gradients of a prefix",
        start=start,
        transform=transform,
        relate=relate,
        signed_zeros=False,
    )


def nothing_written() -> Invariance:
    """Where w, or beta, is zero and a state begins at zero, o and the final state are zero.

    Of either sign: a sum of products that are all -0 is.
    """

    def transform(inputs: Inputs) -> Inputs:
        gate = "beta" if "beta" in inputs.tensors else "w"
        zero = inputs.tensors[gate].clone()
        zero[: sum(lengths(inputs))] = 0
        return _without(inputs.replace(**{gate: zero}), "initial_state")

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {name: torch.zeros_like(tensor) for name, tensor in found.items()}

    return Invariance(
        name="nothing written", transform=transform, relate=relate, signed_zeros=False
    )


def scalar_gates() -> Invariance:
    """beta is b and w that are the same in every channel: KDA as GDN2. Applies to KDA."""

    def transform(inputs: Inputs) -> Inputs | None:
        if "beta" not in inputs.tensors:
            return None
        beta = inputs.tensors["beta"][..., None]
        b, w = (beta.expand_as(inputs.tensors[name]).contiguous() for name in "gv")
        return _without(inputs.replace(b=b, w=w), "beta")

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {name: tensor for name, tensor in found.items() if name != "dbeta"}

    return Invariance(name="beta in every channel", transform=transform, relate=relate)


def states_transposed() -> Invariance:
    """`state_v_first` transposes what states hold, those that come in and those that go out."""

    def transposed(tensors: Tensors) -> dict[str, Tensor]:
        names = {*SEQUENCES, *STATES} & set(tensors)
        return {name: tensors[name].transpose(-1, -2).contiguous() for name in names}

    def transform(inputs: Inputs) -> Inputs:
        params = {**inputs.params, "state_v_first": not inputs.params["state_v_first"]}
        changed = inputs.replace(**transposed(inputs.tensors))
        return dataclasses.replace(changed, params=params)

    def relate(found: Tensors, inputs: Inputs) -> Tensors:
        return {**found, **transposed(found)}

    return Invariance(name="states transposed", transform=transform, relate=relate)


def retained() -> Invariance:
    """A backward pass gives the same whether it keeps the forward pass's intermediates or not."""

    def transform(inputs: Inputs) -> Inputs:
        params = {**inputs.params, "retain": not inputs.params["retain"]}
        return dataclasses.replace(inputs, params=params, case=None)

    return Invariance(
        name="intermediates computed again",
        transform=transform,
        relate=lambda found, inputs: found,
    )


def resize(inputs: Inputs) -> Iterable[Inputs]:
    """Other token counts of as many sequences: one, and next to what the compiler specialises on."""
    used = sum(lengths(inputs))
    slack = slack_rows(inputs)
    rows = torch.arange(max(used, 1), device=slack.device)
    others = [(n, rows[:0]) for n in range(1, len(lengths(inputs)))]
    for count in (1, 16, 17, 129) if used else ():
        yield repack(inputs, [(0, rows.repeat(-(-count // used))[:count]), *others], slack)


def program(output: str, index: tuple[int, ...], inputs: Inputs) -> str:
    """Which programs an element is the work of, for reports."""
    if output in SUMS:
        return f"the programs of value head {index[0]}"
    head = f"{'head' if output in _OF_KEY_HEADS else 'value head'} {index[1]}"
    if output in STATES:
        return f"the programs of sequence {index[0]}, {head}"
    starts = inputs.tensors["cu_seqlens"].tolist()
    for sequence, (start, stop) in enumerate(itertools.pairwise(starts)):
        if start <= index[0] < stop:
            token = index[0] - start
            chunk = f"chunk {token // CHUNK} of sequence {sequence} (its token {token})"
            return f"the programs of {chunk}, {head}"
    return f"the programs of the slack rows, {head}"


def _longer_than(inputs: Inputs, least: int) -> int:
    """A sequence of more than `least` tokens; there has to be one."""
    able = [n for n, length in enumerate(lengths(inputs)) if length > least]
    return able[generators.pick(inputs.seed, len(able))]


def _cut(inputs: Inputs, length: int) -> int:
    """Where a sequence of `length` tokens is cut, a token at least on either side."""
    return 1 + generators.pick(inputs.seed + 1, length - 1)


def _order(seed: int, count: int) -> list[int]:
    """An order of `count` things, two or more, that moves some."""
    order: list[int] = generators.permutation(seed, count, torch.device("cpu")).tolist()
    return order if order != sorted(order) else [*order[1:], order[0]]


def _without(inputs: Inputs, name: str) -> Inputs:
    kept = {other: tensor for other, tensor in inputs.tensors.items() if other != name}
    return dataclasses.replace(inputs, tensors=kept, case=None)
