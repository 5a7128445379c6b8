"""What the delta-rule kernels answer: exact, as their storage makes it, and what fp32 arithmetic may add.

Every answer is a `Modelled`. The exact part is the recurrence in float64, or its adjoint, of the operands as
callers have them: gates, normalisation and grouped heads included. The model is the chunk form with the
intermediates rounded that the policy does not keep in fp32, and operands of products cut as tensor cores cut
them.

The model. Roundings depend on the last bits of what is rounded, and those on the order of fp32 additions: a
kernel's errors are not the model's, but of their size. Where a row hangs on few numbers its error may be
small by luck; so the model rounds on eight grids (see `oracles.precision.make_store`), all at once as so many
more heads, and each row answers with its farthest sample.

The floor. Rounding an output to its type may cost half a unit in the last place of each element. A product
of two [64, n] operands errs by at most n units of 2^-24 of the product of magnitudes (Higham, Accuracy and
Stability of Numerical Algorithms, 2nd ed., §3.1; a tensor core's cuts are twice that). Rounding its
operands to bf16 errs by about 2^-9 of the same magnitudes, and whatever follows carries both alike. So the
error of the chunk form with every intermediate and operand rounded to bf16, times 2 n 2^-24 / 2^-9, stands
for that of the arithmetic. A cumulative log-decay G adds at most 8 * 2^-24 |G| to an exponent: a scan of 64
is 6 additions deep, and the gate and the change of base round once each. Where nothing but decays is left of
a state, all of it may hang on one number, whose rounding may be small by luck: so decays of states are not
rounded but set off by as much as rounding may do. What cancels in a log-decay's gradient are products of
which either took the other's factors in another order: it does so to within the arithmetic's units, one cut
of an operand (2^-10, on one side alone) and one rounding of a stored intermediate, of the magnitudes that are
added. The last two are sampled, but a row may hang on one channel, whose samples may all be small: where one
has more of the row's squares than all others, they are allowed of it. The adjoint of normalising takes out
what lies along the row; of the magnitudes that cancel there the sum of K products loses K units of 2^-24 and
its factors as many as a scan, which is all that is left where K is 1. What is subnormal on the way may be
flushed to zero: 2^-126 for each term of a sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from bitproof.oracles.delta import chunk, ranks, recurrence
from bitproof.oracles.delta.chunk import CHUNK, Operand
from bitproof.oracles.delta.gates import activate_adjoint, normalise_adjoint, normalise_cancelled
from bitproof.oracles.delta.problem import Params, Problem, Tensors, pose_problem
from bitproof.oracles.delta.recurrence import Tokens
from bitproof.oracles.formats import BF16, Floats
from bitproof.oracles.modelled import Modelled
from bitproof.oracles.precision import (
    BACKWARD,
    EXCHANGED,
    FORMATS,
    FORWARD,
    Store,
    exact,
    find_policy,
    make_store,
    nearest,
    tf32,
)

UNIT: Final = 2.0**-24
COARSE: Final = 2.0**-9
TF32: Final = 2.0**-10
SCAN: Final = 8
GRIDS: Final = tuple(2.0 ** (i / 8) for i in range(8))
FLUSHED: Final = 256 * 2.0**-126


def list_rounded_points(
    tensors: Tensors, params: Params, points: tuple[str, ...]
) -> frozenset[str]:
    """Those of `points` that a call stores in less than fp32."""
    if tensors["v"].dtype == torch.float32:
        return frozenset()
    return frozenset(points) - find_policy(params["precision"]).kept


def recurrent(tensors: Tensors, params: Params) -> dict[str, Modelled]:
    """o and final_state of the kernel that goes token by token: all that is rounded is o.

    o is [T, HV, V], slack rows zero; final_state [N, HV, K, V], or [N, HV, V, K] with `state_v_first`.
    With the limits that params["limits"] names by output, as `forward` and `vjp` have them too.
    """
    p = pose_problem(tensors, params)
    dtype = tensors["v"].dtype

    def run(x: Tokens, store: Store) -> dict[str, Tensor]:
        found = recurrence.recurrence(x, p.scale, p.initial, p.lengths, store=store)
        return _outputs(p, found.o, found.final)

    value = run(p.x, exact)
    share = 2 * (p.x.q.shape[2] + SCAN) * UNIT / COARSE
    rounded = {name: _coarse(x) for name, x in p.x.to_dict().items()}
    rounded["g"] = p.x.g * (1 + SCAN * UNIT / share)
    coarse = run(Tokens(**rounded), lambda name, x: _coarse(x))
    return {
        name: _answer(
            exactly,
            exactly[None],
            share * (coarse[name] - exactly),
            dtype if name == "o" else torch.float32,
            limit=_limit(params, name),
        )
        for name, exactly in value.items()
    }


def _limit(params: Params, name: str) -> float | None:
    limits: Mapping[str, float] = params.get("limits", {})
    return limits.get(name)


def forward(tensors: Tensors, params: Params) -> dict[str, Modelled]:
    """o and final_state of the chunked kernel."""
    p = pose_problem(tensors, params)
    found = recurrence.recurrence(p.x, p.scale, p.initial, p.lengths)
    value = _outputs(p, found.o, found.final)
    points = list_rounded_points(tensors, params, (*FORWARD, *EXCHANGED))
    dtype = tensors["v"].dtype
    many = _repeat(p, len(GRIDS))
    samples = _samples(
        chunk_outputs(many, *_make_sampled_stores(points, dtype, many)), "o", "final_state"
    )
    coarse, share = chunk_outputs(p, *_COARSE, fold=_coarse), _share(p)
    return {
        name: _answer(
            exactly,
            samples[name],
            share * (coarse[name] - exactly),
            dtype if name == "o" else torch.float32,
            limit=_limit(params, name),
        )
        for name, exactly in value.items()
    }


def forward_types(tensors: Tensors, params: Params) -> dict[str, torch.dtype]:
    """Those of the outputs of a forward pass, under every policy: o's is v's, states are fp32."""
    return {"o": tensors["v"].dtype, "final_state": torch.float32}


def gradient_types(tensors: Tensors, params: Params) -> dict[str, torch.dtype]:
    """Those of gradients: their operand's, fp32 for states and for the parameters of gates."""
    of_tokens = {f"d{name}": tensors[name].dtype for name in _OF_TOKENS if name in tensors}
    return of_tokens | dict.fromkeys(("dA_log", "ddt_bias", "d_initial_state"), torch.float32)


_OF_TOKENS: Final = ("q", "k", "v", "g", "b", "w", "beta")


def model(tensors: Tensors, params: Params, rounded: frozenset[str]) -> dict[str, Floats]:
    """o and final_state of the chunk form with just the intermediates in `rounded` rounded, o among them.

    float64 arrays, shaped as in `recurrent`.
    """
    p = pose_problem(tensors, params)
    dtype = tensors["v"].dtype
    found = chunk_outputs(p, make_store(rounded, dtype), chunk.as_is)
    if "o" in rounded:
        found["o"] = nearest(found["o"], FORMATS[dtype])
    return {name: _numpy(value) for name, value in found.items()}


def gradient_model(tensors: Tensors, params: Params, rounded: frozenset[str]) -> dict[str, Floats]:
    """Every gradient of the chunk form with just the intermediates in `rounded` rounded.

    "gradient" among them rounds the answer itself, to its operand's type. float64 arrays, shaped as in `vjp`.
    """
    p = pose_problem(tensors, params)
    store = make_store(rounded, tensors["v"].dtype)
    found, _ = chunk_gradients(p, store, chunk.as_is)
    types = gradient_types(tensors, params)
    answers = {name: value for name, value in found.items() if " " not in name}
    if "gradient" in rounded:
        answers = {n: nearest(value, FORMATS[types[n]]) for n, value in answers.items()}
    return {name: _numpy(value) for name, value in answers.items()}


def chunk_outputs(
    p: Problem, store: Store, operand: Operand, fold: Operand = chunk.as_is
) -> dict[str, Tensor]:
    """o and final_state of the chunk form, neither rounded: float64, shaped as in `recurrent`.

    `fold` reads the operands of the products by which ranks fold summaries.
    """
    o, final = ranks.forward(
        p.x, p.scale, p.initial, p.parts, store=store, operand=operand, fold=fold
    )
    return _outputs(p, o, final)


def vjp(tensors: Tensors, params: Params) -> dict[str, Modelled]:
    """Every gradient that `kernels.delta.chunk_bwd` answers with, shaped as its operand, slack rows zero.

    d_initial_state, and with raw gates dA_log [HV] and ddt_bias [HV, K], are there without the operand too.
    """
    p = pose_problem(tensors, params)
    value = exact_gradients(p)
    points = list_rounded_points(tensors, params, (*FORWARD, *BACKWARD, *EXCHANGED))
    many = _repeat(p, len(GRIDS))
    sampled, _ = chunk_gradients(many, *_make_sampled_stores(points, tensors["v"].dtype, many))
    samples = _samples(sampled, *value)
    coarse, _ = chunk_gradients(p, *_COARSE, fold=_coarse)
    _, weight = chunk_gradients(p, exact, chunk.as_is)
    share, cancelled = _share(p), _of_gates(p, weight)
    slip = TF32
    if points and tensors["v"].dtype != torch.float32:
        slip += 2.0 ** -(FORMATS[tensors["v"].dtype].mantissa_bits + 1)
    answers, types = {}, gradient_types(tensors, params)
    for name in (name for name in value if " " not in name):
        terms, lost = f"{name} terms", f"{name} cancelled"
        floor = share * (coarse[name] - value[name]).abs()
        if name in cancelled:
            floor = floor + _bound_left(cancelled[name], share, slip)
        if lost in value:
            floor = floor + (p.x.q.shape[2] + SCAN) * UNIT * value[lost]
        if terms in value:
            arithmetic = share * (coarse[terms] - value[terms]).abs()
            if terms in cancelled:
                arithmetic = arithmetic + _bound_left(cancelled[terms], share, slip)
            floor = _bound_sum(value[terms], samples[terms], arithmetic)
        answers[name] = _answer(
            value[name], samples[name], floor, types[name], limit=_limit(params, name)
        )
    return answers


def exact_gradients(p: Problem) -> dict[str, Tensor]:
    """The gradients of the recurrence, float64, as `chunk_gradients` names them."""
    run = recurrence.recurrence(p.x, p.scale, p.initial, p.lengths, keep=True)
    grads = recurrence.adjoint(p.x, p.scale, run, p.lengths, p.raw["do"], p.raw["dht"])
    return _gradients(p, *grads)


def _bound_left(magnitudes: Tensor, share: float, slip: float) -> Tensor:
    """What cancelling terms of these magnitudes leave: the arithmetic of each, `slip` of one that rules."""
    size = magnitudes.abs()
    rules = 2 * size.square() > size.square().sum(-1, keepdim=True)
    return share * COARSE * size + slip * torch.where(rules, size, 0.0)


def chunk_gradients(
    p: Problem, store: Store, operand: Operand, fold: Operand = chunk.as_is
) -> tuple[dict[str, Tensor], Tensor]:
    """The gradients of the chunk form, and how much is added up to that of the log-decays.

    float64, neither rounded to their types; beside a sum over tokens its terms, as "NAME terms", and beside
    gradients of normalised rows the magnitudes that cancel in them, as "NAME cancelled".
    """
    grads, dinitial, weight = ranks.weigh_adjoint(
        p.x,
        p.scale,
        p.initial,
        p.parts,
        p.raw["do"],
        p.raw["dht"],
        store=store,
        operand=operand,
        fold=fold,
    )
    return _gradients(p, grads, dinitial), weight


# A sum's error is judged by its terms': the storage errors of single sums cancel by luck. As in `_STORED` of
# kernels/delta/specs.py, it may err four times as far as the farthest of eight samples.
_SUM_SLACK: Final = 4.0


def _bound_sum(value: Tensor, samples: Tensor, arithmetic: Tensor) -> Tensor:
    """The floor of a sum over the last axis, from its terms: exact, in each sample, and their floor.

    Adding n numbers pairwise errs by at most log2 n units of the sum of their magnitudes (Higham, §4.2),
    and a few more where the partial sums are added one after another. Each term may have been flushed.
    """
    terms = value.shape[-1]
    farthest: Tensor = (samples - value).square().sum(-1).sqrt().amax(0)
    additions = (terms.bit_length() + SCAN) * UNIT * value.abs().sum(-1)
    return _SUM_SLACK * farthest + arithmetic.abs().sum(-1) + additions + terms * FLUSHED


def _outputs(p: Problem, o: Tensor, final: Tensor) -> dict[str, Tensor]:
    state = final.transpose(-1, -2) if p.v_first else final
    return {"o": _pad(p, o), "final_state": state}


def _gradients(p: Problem, grads: Tokens, dinitial: Tensor) -> dict[str, Tensor]:
    """By the names of what was passed; with the terms of those that are sums, and what cancels in others."""
    found = {}
    for name in "qk":
        unit = getattr(grads, name)
        unit = unit.unflatten(1, (-1, p.groups)).sum(2)
        raw = p.raw[name]
        found[f"d{name}"] = _pad(p, normalise_adjoint(raw, unit) if p.normalise else unit)
        if p.normalise:
            found[f"d{name} cancelled"] = _pad(p, normalise_cancelled(raw, unit))
    found["dv"] = _pad(p, grads.v)
    found |= _of_gates(p, grads.g)
    if p.scalar:
        terms = _pad(p, torch.cat([grads.b, grads.w], -1))
        found |= {"dbeta": terms.sum(-1), "dbeta terms": terms}
    else:
        found |= {"db": _pad(p, grads.b), "dw": _pad(p, grads.w)}
    found["d_initial_state"] = dinitial.transpose(-1, -2) if p.v_first else dinitial
    return found


def _of_gates(p: Problem, dg: Tensor) -> dict[str, Tensor]:
    """The gradients that the log-decays' hands on: of raw gates, and of their parameters with the terms."""
    raw, da_log, dbias = activate_adjoint(p.raw["g"], p.gate, dg)
    found = {"dg": _pad(p, raw)}
    if da_log is not None:
        found |= {"dA_log": da_log.sum(-1), "dA_log terms": da_log}
    if dbias is not None:
        found |= {"ddt_bias": dbias, "ddt_bias terms": raw.permute(1, 2, 0)}
    return found


def _pad(p: Problem, x: Tensor) -> Tensor:
    return torch.cat([x, x.new_zeros(p.slack, *x.shape[1:])])


def _coarse(x: Tensor) -> Tensor:
    return nearest(x, BF16)


def _coarsely(name: str, x: Tensor) -> Tensor:
    return x * (1 + COARSE) if name == "last" else _coarse(x)


_COARSE: Final[tuple[Store, Operand]] = (_coarsely, _coarse)


def _repeat(p: Problem, times: int) -> Problem:
    """The same call with all heads so many times, one repetition after another."""

    def again(x: Tensor, axis: int) -> Tensor:
        return x.repeat(*(times if i == axis else 1 for i in range(x.dim())))

    axes = {"A_log": 0, "dt_bias": 0}
    raw = {name: again(value, axes.get(name, 1)) for name, value in p.raw.items()}
    return dataclasses.replace(
        p,
        raw=raw,
        x=Tokens(**{name: again(value, 1) for name, value in p.x.to_dict().items()}),
        gate=dataclasses.replace(p.gate, a_log=raw.get("A_log"), dt_bias=raw.get("dt_bias")),
        initial=again(p.initial, 1),
    )


def _samples(found: Mapping[str, Tensor], *names: str) -> dict[str, Tensor]:
    """What a repeated call answers, one sample after another along a new first axis."""
    first = {"dA_log", "ddt_bias", "dA_log terms", "ddt_bias terms"}
    return {
        name: torch.stack(found[name].chunk(len(GRIDS), 0 if name in first else 1))
        for name in names
    }


def _make_sampled_stores(
    points: frozenset[str], dtype: torch.dtype, many: Problem
) -> tuple[Store, Operand]:
    """What is stored, and read by products, each repetition on a grid of its own."""
    heads = many.x.q.shape[1] // len(GRIDS)
    grids = torch.tensor(GRIDS, dtype=torch.float64, device=many.x.q.device)
    grid = grids.repeat_interleave(heads)[:, None, None]
    return make_store(points, dtype, grid), lambda x: tf32(x * grid) / grid


def _share(p: Problem) -> float:
    """How much of the coarse error the arithmetic may add; see the module's text."""
    widest = max(p.x.q.shape[2], p.x.v.shape[2], CHUNK)
    return (2 * widest + SCAN * p.deepest) * UNIT / COARSE


def _answer(
    value: Tensor,
    samples: Tensor,
    arithmetic: Tensor,
    dtype: torch.dtype,
    limit: float | None = None,
) -> Modelled:
    """Rows are tokens, or sequences, and heads; the arithmetic's part is spread evenly over a row."""
    rows = min(2, value.dim())
    inner = tuple(range(rows, value.dim()))

    def size(x: Tensor) -> Tensor:
        return x.square().mean(inner, keepdim=True).sqrt() if inner and x.numel() else x.abs()

    model = samples[0]
    for sample in samples[1:]:
        model = torch.where(size(sample - value) > size(model - value), sample, model)
    fmt = FORMATS[dtype]
    unit = 2.0 ** -(fmt.mantissa_bits + 1)
    rounding = unit * value.abs().clamp(min=2.0**fmt.minimum_exponent)
    floor = size(arithmetic).expand_as(value) + rounding + FLUSHED
    return Modelled(
        value=_numpy(value), model=_numpy(model), floor=_numpy(floor), rows=rows, limit=limit
    )


def _numpy(x: Tensor) -> Floats:
    return x.contiguous().cpu().numpy()
