"""Relations of the gated delta rule: each holds for the recurrence and breaks for one that has not it."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch

from bitproof.harness import case as cases
from bitproof.harness import checks
from bitproof.harness.outcomes import Outcome
from bitproof.harness.strategies.gates import Gates
from bitproof.kernels.delta import invariances, invariances_scaling, packing
from bitproof.kernels.delta.cases import DeltaCase
from tests.harness.plain import PlainLane, variant

CPU = torch.device("cpu")
CASE = DeltaCase(
    lengths=(3, 0, 7, 2),
    slack=2,
    heads=2,
    groups=2,
    keys=4,
    values=3,
    dtype="fp32",
    gates=Gates(gate="bounded"),
    initial=True,
    seed=3,
)
BACKWARD = dataclasses.replace(CASE, gradient=True)
KDA = dataclasses.replace(CASE, kind="kda")


def _decay(g, tensors, params, head):
    """The log-decay [K] of one value head."""
    if params["gate"] == "log":
        return g
    x = g + tensors["dt_bias"][head]
    rate = tensors["A_log"][head].exp() if "A_log" in tensors else 1.0
    if params["gate"] == "plain":
        return -rate * torch.nn.functional.softplus(x)
    return params["lower_bound"] * torch.sigmoid(rate * x)


def _unit(x, params):
    return x / (x.square().sum() + 1e-6).sqrt() if params["normalise"] else x


def forward(tensors, params):
    """o and final_state, by one value head of one sequence and one token after another."""
    q, k, v, g = (tensors[name] for name in "qkvg")
    starts = tensors["cu_seqlens"].tolist()
    groups = v.shape[1] // q.shape[1]
    scale = q.shape[2] ** -0.5 if params["scale"] is None else params["scale"]
    o = [[torch.zeros(v.shape[2])] * v.shape[1] for _ in range(len(v))]
    final = []
    for n, (start, stop) in enumerate(itertools.pairwise(starts)):
        final.append([])
        for head in range(v.shape[1]):
            if "initial_state" in tensors:
                state = tensors["initial_state"][n, head]
                state = state.T if params["state_v_first"] else state
            else:
                state = torch.zeros(q.shape[2], v.shape[2])
            for t in range(start, stop):
                query = _unit(q[t, head // groups], params)
                key = _unit(k[t, head // groups], params)
                b, w = (tensors[name][t, head] for name in _gates(tensors))
                state = state * _decay(g[t, head], tensors, params, head).exp()[:, None]
                read = ((b * key)[:, None] * state).sum(0)
                state = state + key[:, None] * (w * v[t, head] - read)
                o[t][head] = scale * (query[:, None] * state).sum(0)
            final[-1].append(state.T if params["state_v_first"] else state)
    return {
        "o": torch.stack([torch.stack(row) for row in o]),
        "final_state": torch.stack([torch.stack(row) for row in final]).contiguous(),
    }


def _gates(tensors):
    return ("beta", "beta") if "beta" in tensors else ("b", "w")


def backward(tensors, params):
    """Every gradient, by torch's own differentiation of `forward`."""
    dense = {
        name: tensor.nan_to_num().requires_grad_()
        if name not in ("cu_seqlens", "do", "dht")
        else tensor
        for name, tensor in tensors.items()
    }
    if "initial_state" not in dense:
        dense["initial_state"] = torch.zeros_like(tensors["dht"]).requires_grad_()
    used = int(tensors["cu_seqlens"][-1])
    found = forward(dense, params)
    loss = (found["o"][:used] * tensors["do"][:used]).sum()
    loss = loss + (found["final_state"] * tensors["dht"]).sum()
    names = {name: tensor for name, tensor in dense.items() if tensor.requires_grad}
    grads = torch.autograd.grad(loss, list(names.values()), materialize_grads=True)
    outputs = {"initial_state": "d_initial_state"}
    return {outputs.get(name, f"d{name}"): grad for name, grad in zip(names, grads, strict=True)}


def _outcome(relation, case, run=None):
    """What the check of invariances says of the recurrence, or of `run` in its place."""
    run = run or (backward if case.gradient else forward)
    lane = PlainLane()
    findings = checks.run(
        "invariances",
        variant(run=run, invariances=(relation,)),
        cases.build(case, lane.device),
        lane,
    )
    assert findings.outcome in VERDICTS, findings.text
    return VERDICTS[findings.outcome]


VERDICTS = {Outcome.PASSED: True, Outcome.FAILED: False, Outcome.NOT_DEMONSTRATED: None}
HELD = {
    "alone": (invariances.sequence_alone(), (CASE, BACKWARD)),
    "sequences": (invariances.sequences_permuted(), (CASE, BACKWARD)),
    "empty": (invariances.empty_sequence_inserted(), (CASE, BACKWARD)),
    "heads": (invariances.heads_permuted(), (CASE, BACKWARD)),
    "split": (invariances.split(3), (CASE,)),
    "future": (invariances.future_cut_off(), (CASE,)),
    "prefix": (invariances.gradients_of_a_prefix(), (BACKWARD,)),
    "values": (invariances_scaling.values_scaled(), (CASE,)),
    "gradients": (invariances_scaling.gradients_scaled(), (BACKWARD,)),
    "nothing": (invariances.nothing_written(), (CASE,)),
    "scalar": (invariances.scalar_gates(), (KDA, dataclasses.replace(BACKWARD, kind="kda"))),
    "transposed": (invariances.states_transposed(), (CASE, BACKWARD)),
    "retained": (invariances.retained(), (BACKWARD,)),
}
VARIANTS = [
    {},
    {"initial": False, "gates": Gates()},
    {"normalise": False, "state_v_first": True, "gates": Gates(gate="plain", kind="gentle")},
    {"kind": "kda", "dtype": "bf16"},
]


@pytest.mark.parametrize("name", HELD)
def test_the_recurrence_has_every_relation(name):
    """Forward and backward, with and without initial states, of either rule, any gate and layout."""
    relation, those = HELD[name]
    for case in those:
        for change in VARIANTS if name != "scalar" else VARIANTS[-1:]:
            varied = dataclasses.replace(case, **change)
            assert _outcome(relation, varied) is True


def _with(run, **edits):
    """The launcher `run` with some outputs edited: name=edit(output, tensors, params)."""

    def edited(tensors, params):
        found = dict(run(tensors, params))
        for name, edit in edits.items():
            found[name] = edit(found[name], tensors, params)
        return found

    return edited


def _on(run, edit):
    """The launcher `run` on other tensors and parameters: edit(tensors, params) -> both."""
    return lambda tensors, params: run(*edit(dict(tensors), dict(params)))


def _last_gate(tensors, params):
    """A decay that is counted from a sequence's last token, which lies in the future."""
    rows = (tensors["cu_seqlens"][1:] - 1).clamp(min=0).tolist()
    g = tensors["g"].clone()
    for start, row in zip(tensors["cu_seqlens"].tolist(), rows, strict=False):
        g[start : row + 1] += 2.0**-10 * tensors["g"][row]
    return {**tensors, "g": g}, params


def _first_rate(tensors, params):
    return {**tensors, "A_log": tensors["A_log"][:1].expand_as(tensors["A_log"])}, params


def _no_states(tensors, params):
    return {name: x for name, x in tensors.items() if name != "initial_state"}, params


def _one_sequence(tensors, params):
    """States that are not reset where a sequence begins."""
    starts = tensors["cu_seqlens"].clone()
    starts[1:-1] = starts[-1]
    return {**tensors, "cu_seqlens": starts}, params


def _squared(tensors, params):
    """The erase gate applied twice, where there is one for each channel."""
    return {**tensors, **({"b": tensors["b"] ** 2} if "b" in tensors else {})}, params


def _untransposed(tensors, params):
    """The layout heeded on the way in alone."""
    found = forward(tensors, params)
    if params["state_v_first"]:
        found["final_state"] = found["final_state"].transpose(-1, -2).contiguous()
    return found


def _noted(x, tensors, params):
    return x * (1 + 2.0**-20) if params["retain"] else x


def _counted(x, tensors, params):
    return x * len(tensors["q"])


BROKEN = {
    "the state leaks from sequence to sequence": ("alone", CASE, _on(forward, _one_sequence)),
    "gradients depend on all the rows": ("alone", BACKWARD, _with(backward, dv=_counted)),
    "the first sequence is another": (
        "sequences",
        CASE,
        _with(forward, final_state=lambda x, t, p: torch.cat([x[:1] * 2, x[1:]])),
    ),
    "an empty sequence ends at zero": (
        "empty",
        CASE,
        _with(
            forward,
            final_state=lambda x, t, p: x * (t["cu_seqlens"].diff() > 0)[:, None, None, None],
        ),
    ),
    "all heads read the first one's rate": ("heads", CASE, _on(forward, _first_rate)),
    "all heads read the first one's rate backward": ("heads", BACKWARD, _on(backward, _first_rate)),
    "the initial state is not read": ("split", CASE, _on(forward, _no_states)),
    "decays are counted from a later token": ("future", CASE, _on(forward, _last_gate)),
    "gradients are counted from a later token": ("prefix", BACKWARD, _on(backward, _last_gate)),
    "a constant is added": ("values", CASE, _with(forward, o=lambda x, t, p: x + 2.0**-6)),
    "a gradient is added to": (
        "gradients",
        BACKWARD,
        _with(backward, dw=lambda x, t, p: x + 2.0**-6),
    ),
    "something is read that nobody wrote": (
        "nothing",
        CASE,
        _with(forward, o=lambda x, t, p: x + 2.0**-100),
    ),
    "the erase gate is applied twice": ("scalar", KDA, _on(forward, _squared)),
    "the final state is not transposed": ("transposed", CASE, _untransposed),
    "what is retained is rounded": ("retained", BACKWARD, _with(backward, dk=_noted)),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_recurrence_without_the_relation_is_found(fault):
    """One planted fault for each relation, those of a backward pass included."""
    name, case, run = BROKEN[fault]
    wide = dataclasses.replace(case, values=case.keys) if "transposed" in fault else case
    assert _outcome(HELD[name][0], wide, run) is False


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("alone", {"lengths": (7,), "slack": 0}),
        ("alone", {"lengths": (0, 0)}),
        ("sequences", {"lengths": (7,)}),
        ("heads", {"heads": 1}),
        ("split", {"lengths": (3, 2)}),
        ("future", {"lengths": (1, 1, 0)}),
        ("values", {"dtype": "fp16"}),
        ("values", {"gates": Gates(gate="plain", kind="saturated")}),
        ("values", {"gates": Gates(kind="saturated", bound="0xc2c80000")}),
        ("scalar", {}),
    ],
)
def test_a_relation_that_says_nothing_does_not_apply(name, change):
    """No second sequence, no second head, no token to cut off, no room to scale, no single beta."""
    assert _outcome(HELD[name][0], dataclasses.replace(CASE, **change)) is None


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("prefix", {"lengths": (1, 0)}),
        ("gradients", {"dtype": "fp16"}),
        ("gradients", {"gates": Gates(kind="saturated", bound="0xc2c80000")}),
    ],
)
def test_a_relation_of_gradients_that_says_nothing_does_not_apply(name, change):
    """Nor where there is one token alone, or decays of e^-100."""
    assert _outcome(HELD[name][0], dataclasses.replace(BACKWARD, **change)) is None


def test_a_state_that_only_decays_is_not_scaled():
    """A whole one would be e^-160 after 64 tokens that write nothing, and what is left of it is flushed.

    Nor is its gradient, where no token reads the state; a few such tokens do not matter.
    """
    longer = {"gates": Gates(gate="bounded"), "slack": 0}
    values, gradients = HELD["values"][0], HELD["gradients"][0]
    for length, applies in ((65, None), (6, True)):
        silent = dataclasses.replace(KDA, lengths=(length,), erase="zero", **longer)
        assert _outcome(values, silent) is applies
        unread = dataclasses.replace(BACKWARD, lengths=(length,), **longer)
        inputs = cases.build(unread, CPU)
        unread_inputs = inputs.replace(q=torch.zeros_like(inputs.tensors["q"]))
        assert (gradients.transform(unread_inputs) is not None) is bool(applies)


def test_orders_are_never_the_one_there_is():
    """Otherwise half of the cases with two heads would compare a run with itself."""
    for seed in range(20):
        for count in (2, 3, 5):
            order = invariances._order(seed, count)
            assert sorted(order) == list(range(count)) != order


@pytest.mark.parametrize("lengths", [(5, 0, 9, 2), (0, 3), (1,)])
def test_other_token_counts_keep_every_other_shape(lengths):
    """Of as many sequences, next to multiples of 16; slack rows stay."""
    inputs = cases.build(dataclasses.replace(BACKWARD, lengths=lengths), CPU)
    counts = []
    for other in invariances.resize(inputs):
        counts.append(int(other.tensors["cu_seqlens"][-1]))
        for name, tensor in inputs.tensors.items():
            changed = other.tensors[name]
            rows = counts[-1] + 2 if name in packing.TOKENS else len(tensor)
            assert (changed.shape, changed.dtype) == ((rows, *tensor.shape[1:]), tensor.dtype)
        assert bool(other.tensors["q"][: counts[-1]].isfinite().all())
        assert bool(other.tensors["q"][counts[-1] :].isnan().all())
    assert counts == [1, 16, 17, 129]
    empty = dataclasses.replace(BACKWARD, lengths=(0,) * len(lengths))
    assert list(invariances.resize(cases.build(empty, CPU))) == []


@pytest.mark.parametrize(
    ("output", "index", "says"),
    [
        ("o", (66, 3, 1), "chunk 1 of sequence 0 (its token 66), value head 3"),
        ("dq", (70, 1, 0), "chunk 0 of sequence 2 (its token 0), head 1"),
        ("dv", (73, 0, 0), "the slack rows, value head 0"),
        ("final_state", (2, 1, 0, 0), "sequence 2, value head 1"),
        ("ddt_bias", (3, 1), "value head 3"),
    ],
)
def test_reports_name_the_sequence_and_the_chunk(output, index, says):
    """Of an element's row, or the sequence of a state, and its head."""
    inputs = cases.build(dataclasses.replace(CASE, lengths=(70, 0, 3)), CPU)
    assert invariances.program(output, index, inputs) == f"the programs of {says}"
