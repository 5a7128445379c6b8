"""The gated delta rule under test: GDN2 (vector gates) and KDA (one beta), by chunks and token by token.

A backward pass is a kernel under test of its own, `..._vjp`: its outputs are gradients, its oracle the
adjoint of the recurrence, and every check applies to it as it stands.
"""

from __future__ import annotations

from functools import partial

from bitproof.harness.bounds.norms import storage_model
from bitproof.harness.spec import Accepted, Bitwise, KernelSpec, Lowering, Params, Storage
from bitproof.kernels.delta import (
    chunk_bwd,
    chunk_fwd,
    corners,
    faults,
    faults_backward,
    faults_recurrent,
    invariances,
    invariances_scaling,
    recurrent,
)
from bitproof.kernels.delta.cases import DeltaCase, delta_cases
from bitproof.oracles.delta import answers
from bitproof.oracles.precision import BACKWARD, FORWARD, named

# Operands in fp32, or kept in it by the policy, are multiplied as tf32, which the model does too.
_LOWERING = Lowering(
    supports=("sm_90",),
    alone=True,
    products=("tf32",),
    accepted=(
        Accepted(
            hazard="undefined register",
            because="ptxas 12.8 makes such code, and on a card the launchers refuse to run with it",
            targets=("sm_90",),
        ),
    ),
    most=3,
)

_STORED = storage_model(
    4.0,
    because="a kernel rounds what the model rounds, on last bits that its fp32 sums decide; the farthest "
    "of eight samples is exceeded fourfold by none",
)
_BY_TOKEN = storage_model(
    1.0,
    because="nothing is stored between tokens; the floor holds the output's rounding and fp32's",
)
_OUTPUTS = {"o": _STORED, "final_state": _STORED}
_GRADIENTS = ("dq", "dk", "dv", "dg", "d_initial_state")
_OF_PARAMETERS = ("dA_log", "ddt_bias")


_OF_FORWARD = (*FORWARD, "o")
_OF_BACKWARD = (*FORWARD, *BACKWARD, "gradient")


def _list_stored(points: tuple[str, ...], params: Params) -> frozenset[str]:
    return frozenset(points) - named(params["precision"]).fp32


def _list_unwritten(params: Params) -> frozenset[str]:
    """Log-decays have no parameters."""
    return frozenset(_OF_PARAMETERS if params["gate"] == "log" else ())


_INVARIANCES = (
    invariances.sequence_alone(),
    invariances.sequences_permuted(),
    invariances.empty_sequence_inserted(),
    invariances.heads_permuted(),
)
_LAYOUT = invariances.states_transposed()
_OF_OUTPUTS = (
    invariances.future_cut_off(),
    invariances_scaling.values_scaled(),
    invariances.nothing_written(),
)
_BY_CHUNK = (*_INVARIANCES, *_OF_OUTPUTS, _LAYOUT, invariances.split(64))
# Compiled code may add the products along K in another order for another layout: no claim of bits.
_TOKEN_BY_TOKEN = (*_INVARIANCES, *_OF_OUTPUTS, invariances.split(1))
_OF_GRADIENTS = (
    *_INVARIANCES,
    _LAYOUT,
    invariances.gradients_of_a_prefix(),
    invariances_scaling.gradients_scaled(),
    invariances.retained(),
)
_AS_GDN2 = invariances.scalar_gates()

_forward = partial(
    KernelSpec,
    case=DeltaCase,
    refuses=(ValueError,),
    capturable=True,
    vast=frozenset({"q", "k", "v"}),
    must_not_recompile=invariances.resize,
    program=invariances.program,
    lowering=_LOWERING,
)
_chunk = partial(
    _forward,
    run=chunk_fwd.launch,
    oracle=answers.forward,
    dtypes=answers.forward_types,
    bounds=_OUTPUTS,
    storage=Storage(
        points=_OF_FORWARD,
        outputs=("o", "final_state"),
        stored=partial(_list_stored, _OF_FORWARD),
        model=answers.model,
        public=frozenset({"o"}),
    ),
    reproducible=Bitwise(shown_by=faults.STATES[0].name),
    invariances=_BY_CHUNK,
    launches={"cuda": 200, "interpreter": 64},
)
_vjp = partial(
    _forward,
    run=chunk_bwd.launch,
    oracle=answers.vjp,
    dtypes=answers.gradient_types,
    reproducible=Bitwise(shown_by=faults_backward.GRADIENTS[0].name),
    unwritten=_list_unwritten,
    invariances=_OF_GRADIENTS,
    launches={"cuda": 80, "interpreter": 40},
)
_gradient_storage = partial(
    Storage,
    points=_OF_BACKWARD,
    stored=partial(_list_stored, _OF_BACKWARD),
    model=answers.gradient_model,
    public=frozenset({"gradient"}),
)
_recurrent = partial(
    _forward,
    run=recurrent.launch,
    oracle=answers.recurrent,
    dtypes=answers.forward_types,
    bounds={"o": _BY_TOKEN, "final_state": _BY_TOKEN},
    reproducible=Bitwise(shown_by=faults_recurrent.TOKENS[0].name),
    invariances=_TOKEN_BY_TOKEN,
    launches={"cuda": 200, "interpreter": 64},
)

GDN2_CHUNK = _chunk(
    name="gdn2_chunk",
    cases=partial(delta_cases, kind="gdn2", chunked=True, gradient=False),
    corners=corners.forward("gdn2"),
    refusals=corners.refusals("gdn2"),
    faults=(*faults.STATES, *faults.WITHIN),
)
GDN2_CHUNK_VJP = _vjp(
    name="gdn2_chunk_vjp",
    cases=partial(delta_cases, kind="gdn2", chunked=True, gradient=True),
    bounds=dict.fromkeys((*_GRADIENTS, *_OF_PARAMETERS, "db", "dw"), _STORED),
    storage=_gradient_storage(outputs=(*_GRADIENTS, "db", "dw")),
    corners=corners.backward("gdn2"),
    refusals=corners.refusals("gdn2", gradient=True),
    faults=faults_backward.GRADIENTS,
)
GDN2_RECURRENT = _recurrent(
    name="gdn2_recurrent",
    cases=partial(delta_cases, kind="gdn2", chunked=False, gradient=False),
    corners=corners.token_by_token("gdn2"),
    refusals=corners.refusals("gdn2", precision="fp32"),
    faults=faults_recurrent.TOKENS,
)
KDA_CHUNK = _chunk(
    name="kda_chunk",
    invariances=(*_BY_CHUNK, _AS_GDN2),
    cases=partial(delta_cases, kind="kda", chunked=True, gradient=False),
    corners=corners.forward("kda"),
    refusals=corners.refusals("kda"),
    faults=(*faults.STATES[:1], *faults.SCALAR),
)
KDA_CHUNK_VJP = _vjp(
    name="kda_chunk_vjp",
    invariances=(*_OF_GRADIENTS, _AS_GDN2),
    cases=partial(delta_cases, kind="kda", chunked=True, gradient=True),
    bounds=dict.fromkeys((*_GRADIENTS, *_OF_PARAMETERS, "dbeta"), _STORED),
    storage=_gradient_storage(outputs=(*_GRADIENTS, "dbeta")),
    corners=corners.backward("kda"),
    refusals=corners.refusals("kda", gradient=True),
    faults=(*faults_backward.GRADIENTS[:1], *faults_backward.SCALAR_GRADIENTS),
)
KDA_RECURRENT = _recurrent(
    name="kda_recurrent",
    invariances=(*_TOKEN_BY_TOKEN, _AS_GDN2),
    cases=partial(delta_cases, kind="kda", chunked=False, gradient=False),
    corners=corners.token_by_token("kda"),
    refusals=corners.refusals("kda", precision="fp32"),
    faults=(*faults_recurrent.TOKENS[:1], *faults_recurrent.SCALAR_TOKENS),
)
