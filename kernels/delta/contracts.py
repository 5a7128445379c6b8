"""The gated delta rule, whoever computes it: KDA (one beta), GDN2 (vector gates). Hold your own against it.

    from bitproof import KernelSpec
    from bitproof.kernels.delta import contracts

    SPEC = KernelSpec(contract=contracts.KDA, name="mine", run=launch)

`launch(tensors, params) -> outputs` gets the tensors that `kernels.delta.arguments` describes, by those
names: q, k, v, g, beta (GDN2: b and w), cu_seqlens, and in some cases initial_state, A_log and dt_bias; and
`params` with "scale" (None for K^-1/2), "gate" ("log", "plain" or "bounded", with "lower_bound"),
"normalise" (whether q and k are normalised first), "state_v_first", "bounded" (a promise that no log-decay is
below -5) and "precision" (the policy of stored intermediates, see `docs/delta.md`). It returns

    KDA, GDN2                       o [T, HV, V] as v, final_state [N, HV, K, V] fp32 ([N, HV, V, K] with
                                    state_v_first); stored intermediates explain their errors
    KDA_VJP, GDN2_VJP               gets do and dht as well; dq, dk, dv, dg, d_initial_state and dbeta (db and
                                    dw), dA_log and ddt_bias where the gate has parameters
    KDA_RECURRENT, GDN2_RECURRENT   as the first, token by token: nothing is stored between tokens

A kernel that takes fewer cases names its own `cases`, or refuses the others by an exception in `refuses`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from bitproof.harness.bounds.norms import storage_model
from bitproof.harness.spec import Contract, Params, Storage
from bitproof.kernels.delta import corners, invariances, invariances_scaling
from bitproof.kernels.delta.cases import DeltaCase, delta_cases
from bitproof.oracles.delta import answers
from bitproof.oracles.precision import BACKWARD, FORWARD, find_policy

STORED: Final = storage_model(
    4.0,
    because="a kernel rounds what the model rounds, on last bits that its fp32 sums decide; the farthest "
    "of eight samples is exceeded fourfold by none",
)
BY_TOKEN: Final = storage_model(
    1.0,
    because="nothing is stored between tokens; the floor holds the output's rounding and fp32's",
)
_OUTPUTS = {"o": STORED, "final_state": STORED}
_GRADIENTS = ("dq", "dk", "dv", "dg", "d_initial_state")
_OF_PARAMETERS = ("dA_log", "ddt_bias")
_OF_FORWARD = (*FORWARD, "o")
_OF_BACKWARD = (*FORWARD, *BACKWARD, "gradient")


def _list_stored(points: tuple[str, ...], params: Params) -> frozenset[str]:
    return frozenset(points) - find_policy(params["precision"]).kept


def _list_unwritten(params: Params) -> frozenset[str]:
    """Log-decays have no parameters."""
    return frozenset(_OF_PARAMETERS if params["gate"] == "log" else ())


# Those that hold bit for bit of whatever treats sequences and heads alike.
OF_SEQUENCES: Final = (
    invariances.sequence_alone(),
    invariances.sequences_permuted(),
    invariances.empty_sequence_inserted(),
    invariances.heads_permuted(),
)
OF_OUTPUTS: Final = (
    invariances.future_cut_off(),
    invariances_scaling.values_scaled(),
    invariances.nothing_written(),
)

_delta: Any = partial(Contract, case=DeltaCase)
_chunk: Any = partial(
    _delta,
    oracle=answers.forward,
    dtypes=answers.forward_types,
    outputs=_OUTPUTS,
    invariances=(*OF_SEQUENCES, *OF_OUTPUTS),
    storage=Storage(
        points=_OF_FORWARD,
        outputs=("o", "final_state"),
        stored=partial(_list_stored, _OF_FORWARD),
        model=answers.model,
        public=frozenset({"o"}),
    ),
)
_vjp: Any = partial(
    _delta,
    oracle=answers.vjp,
    dtypes=answers.gradient_types,
    unwritten=_list_unwritten,
    invariances=OF_SEQUENCES,
)
_gradient_storage = partial(
    Storage,
    points=_OF_BACKWARD,
    stored=partial(_list_stored, _OF_BACKWARD),
    model=answers.gradient_model,
    public=frozenset({"gradient"}),
)
_recurrent: Any = partial(
    _delta,
    oracle=answers.recurrent,
    dtypes=answers.forward_types,
    outputs={"o": BY_TOKEN, "final_state": BY_TOKEN},
    invariances=(*OF_SEQUENCES, *OF_OUTPUTS),
)

GDN2: Final[Contract] = _chunk(
    name="gdn2_chunk",
    cases=partial(delta_cases, kind="gdn2", chunked=True, gradient=False),
    corners=corners.forward("gdn2"),
)
GDN2_VJP: Final[Contract] = _vjp(
    name="gdn2_chunk_vjp",
    cases=partial(delta_cases, kind="gdn2", chunked=True, gradient=True),
    outputs=dict.fromkeys((*_GRADIENTS, *_OF_PARAMETERS, "db", "dw"), STORED),
    storage=_gradient_storage(outputs=(*_GRADIENTS, "db", "dw")),
    corners=corners.backward("gdn2"),
)
GDN2_RECURRENT: Final[Contract] = _recurrent(
    name="gdn2_recurrent",
    cases=partial(delta_cases, kind="gdn2", chunked=False, gradient=False),
    corners=corners.token_by_token("gdn2"),
)
KDA: Final[Contract] = _chunk(
    name="kda_chunk",
    cases=partial(delta_cases, kind="kda", chunked=True, gradient=False),
    corners=corners.forward("kda"),
)
KDA_VJP: Final[Contract] = _vjp(
    name="kda_chunk_vjp",
    cases=partial(delta_cases, kind="kda", chunked=True, gradient=True),
    outputs=dict.fromkeys((*_GRADIENTS, *_OF_PARAMETERS, "dbeta"), STORED),
    storage=_gradient_storage(outputs=(*_GRADIENTS, "dbeta")),
    corners=corners.backward("kda"),
)
KDA_RECURRENT: Final[Contract] = _recurrent(
    name="kda_recurrent",
    cases=partial(delta_cases, kind="kda", chunked=False, gradient=False),
    corners=corners.token_by_token("kda"),
)
