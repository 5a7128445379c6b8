"""The gated delta rule under test: GDN2 (vector gates) and KDA (one beta), by chunks and token by token.

A backward pass is a kernel under test of its own, `..._vjp`: its outputs are gradients, its oracle the
adjoint of the recurrence, and every check applies to it as it stands. Each is a subject of its contract in
`kernels.delta.contracts`, and promises relations beyond it that come of how it computes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bitproof.harness.spec import Accepted, Bitwise, KernelSpec, Lowering
from bitproof.kernels.delta import (
    chunk_bwd,
    chunk_fwd,
    contracts,
    corners,
    faults,
    faults_backward,
    faults_recurrent,
    invariances,
    invariances_scaling,
    recurrent,
)

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
# In every run of the suite the forward pass of KDA stands for these.
_SLOW = replace(_LOWERING, slow=True)

_LAYOUT = invariances.states_transposed()
_SHARED = (*contracts.OF_SEQUENCES, *contracts.OF_OUTPUTS)
_BY_CHUNK = (*_SHARED, _LAYOUT, invariances.split(64))
# Compiled code may add the products along K in another order for another layout: no claim of bits.
_TOKEN_BY_TOKEN = (*_SHARED, invariances.split(1))
_OF_GRADIENTS = (
    *contracts.OF_SEQUENCES,
    _LAYOUT,
    invariances.gradients_of_a_prefix(),
    invariances_scaling.gradients_scaled(),
    invariances.retained(),
)
_AS_GDN2 = invariances.scalar_gates()

_forward = partial(
    KernelSpec,
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
    reproducible=Bitwise(shown_by=faults.STATES[0].name),
    launches={"cuda": 200, "interpreter": 64},
)
_vjp = partial(
    _forward,
    lowering=_SLOW,
    run=chunk_bwd.launch,
    reproducible=Bitwise(shown_by=faults_backward.GRADIENTS[0].name),
    launches={"cuda": 80, "interpreter": 48},
)
_recurrent = partial(
    _forward,
    run=recurrent.launch,
    reproducible=Bitwise(shown_by=faults_recurrent.TOKENS[0].name),
    launches={"cuda": 200, "interpreter": 64},
)

GDN2_CHUNK = _chunk(
    contract=contracts.GDN2,
    lowering=_SLOW,
    invariances=_BY_CHUNK,
    refusals=corners.refusals("gdn2"),
    faults=(*faults.STATES, *faults.WITHIN),
)
GDN2_CHUNK_VJP = _vjp(
    contract=contracts.GDN2_VJP,
    invariances=_OF_GRADIENTS,
    refusals=corners.refusals("gdn2", gradient=True),
    faults=faults_backward.GRADIENTS,
)
GDN2_RECURRENT = _recurrent(
    contract=contracts.GDN2_RECURRENT,
    invariances=_TOKEN_BY_TOKEN,
    refusals=corners.refusals("gdn2", precision="fp32"),
    faults=faults_recurrent.TOKENS,
)
KDA_CHUNK = _chunk(
    contract=contracts.KDA,
    invariances=(*_BY_CHUNK, _AS_GDN2),
    refusals=corners.refusals("kda"),
    faults=(*faults.STATES[:1], *faults.SCALAR),
)
KDA_CHUNK_VJP = _vjp(
    contract=contracts.KDA_VJP,
    invariances=(*_OF_GRADIENTS, _AS_GDN2),
    refusals=corners.refusals("kda", gradient=True),
    faults=(*faults_backward.GRADIENTS[:1], *faults_backward.SCALAR_GRADIENTS),
)
KDA_RECURRENT = _recurrent(
    contract=contracts.KDA_RECURRENT,
    invariances=(*_TOKEN_BY_TOKEN, _AS_GDN2),
    refusals=corners.refusals("kda", precision="fp32"),
    faults=(*faults_recurrent.TOKENS[:1], *faults_recurrent.SCALAR_TOKENS),
)
