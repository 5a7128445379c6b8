"""Planted faults of the delta rule's backward pass, see `kernels.delta.faults`."""

from __future__ import annotations

from functools import partial

from bitproof.harness.spec import Fault

_in_chunk_bwd = partial(Fault, module="bitproof.kernels.delta.chunk_bwd", caught_by="agreement")
_in_chunk_intra_bwd = partial(
    Fault, module="bitproof.kernels.delta.chunk_intra_bwd", caught_by="agreement"
)
_in_chunk_states = partial(
    Fault, module="bitproof.kernels.delta.chunk_states", caught_by="agreement"
)
_in_gates = partial(Fault, module="bitproof.kernels.delta.gates", caught_by="agreement")
_in_tiles = partial(Fault, module="bitproof.kernels.delta.tiles", caught_by="agreement")

GRADIENTS = (
    _in_chunk_intra_bwd(
        name="leaves nobody's rows of dg unwritten",
        within="of_scores",
        old="        store_rows(dg_ptr, nothing, first, end, HEADS, head, column, K, BLOCK_K)\n",
        new="",
        caught_by="reproducibility",
    ),
    _in_chunk_intra_bwd(
        name="scales db by a quarter more",
        within="of_scores",
        old="store_rows(db_ptr, k * dbk,",
        new="store_rows(db_ptr, 1.25 * k * dbk,",
    ),
    _in_chunk_intra_bwd(
        name="scales dw by a quarter more",
        within="of_products",
        old="store_rows(dw_ptr, dwrite * v,",
        new="store_rows(dw_ptr, 1.25 * dwrite * v,",
    ),
    _in_chunk_intra_bwd(
        name="scales dA_log by a quarter more",
        within="of_scores",
        old="tl.where(valid, da_log, 0.0)",
        new="tl.where(valid, 1.25 * da_log, 0.0)",
    ),
    _in_chunk_intra_bwd(
        name="scales ddt_bias by a quarter more",
        within="of_scores",
        old="tl.where(valid, dx, 0.0)",
        new="tl.where(valid, 1.25 * dx, 0.0)",
    ),
    _in_chunk_states(
        name="scales d_initial_state by a quarter more",
        within="pass_gradients",
        old="tl.store(given, state, mask=inside)",
        new="tl.store(given, 1.25 * state, mask=inside)",
    ),
    _in_chunk_intra_bwd(
        name="divides dg by ln 2",
        within="of_scores",
        old="dg = tl.cumsum(ddecay, 0, reverse=True)",
        new="dg = tl.cumsum(ddecay, 0, reverse=True) * 1.442695",
    ),
    _in_chunk_intra_bwd(
        name="multiplies dg by ln 2",
        within="of_scores",
        old="dg = tl.cumsum(ddecay, 0, reverse=True)",
        new="dg = tl.cumsum(ddecay, 0, reverse=True) * 0.6931472",
    ),
    _in_chunk_intra_bwd(
        name="leaves the last row's share out of dg",
        within="of_scores",
        old="    ddecay += tl.where((row == CHUNK - 1)[:, None], dlast[None, :], 0.0)\n",
        new="",
    ),
    _in_chunk_intra_bwd(
        name="leaves the state's decay out of the last row's share",
        within="of_products",
        old="natural_exp(last) * dlast[None, :]",
        new="0.0 * dlast[None, :]",
    ),
    _in_chunk_intra_bwd(
        name="scales the gradient of scores twice",
        within="of_products",
        old="scale * dscores, 0.0",
        new="scale * scale * dscores, 0.0",
    ),
    _in_chunk_intra_bwd(
        name="stores zeros for the gradient of L",
        within="of_products",
        old="-strictly_lower(product(half,",
        new="0.0 * strictly_lower(product(half,",
    ),
    _in_chunk_intra_bwd(
        name="leaves the scale out of what the state gives dq",
        within="of_products",
        old="scale * dq * grown",
        new="dq * grown",
    ),
    _in_chunk_intra_bwd(
        name="leaves the norm out of dq and dk",
        within="of_units",
        old="norm * (dy - y * tl.sum(dy * y, 1)[:, None])",
        new="norm * dy",
    ),
    _in_chunk_states(
        name="begins at zero whatever the final state's gradient",
        within="pass_gradients",
        old="state = tl.load(given, mask=inside, other=0.0)",
        new="state = tl.zeros((PADDED_K, BLOCK_V), tl.float32)",
    ),
    _in_chunk_states(
        name="goes through chunks from the first to the last",
        within="pass_gradients",
        old="step = chunks - 1 - back",
        new="step = back",
    ),
    _in_gates(name="leaves A_log out of dg", within="raw_gradient", old="slope * a", new="slope"),
    _in_tiles(
        name="writes past K",
        within="store_rows",
        old="mask=mask",
        new="mask=(first + tl.arange(0, CHUNK) < end)[:, None] & (column + tl.arange(0, BLOCK) >= 0)",
        caught_by="memory",
    ),
    _in_chunk_bwd(
        name="promotes the forward pass alone",
        within="backward",
        old="saved = prepare(x, options, launch, keep=True)",
        new=(
            "less = type(options.precision)(fp32=frozenset())\n"
            "        again = Options(**{**vars(options), 'precision': less})\n"
            "        saved = prepare(x, again, launch, keep=True)"
        ),
        lanes=("cuda",),
        because=(
            "a run in the interpreter draws few cases that show it; "
            "test_a_promotion_of_the_forward_pass_alone_is_seen gives it one"
        ),
    ),
    _in_chunk_intra_bwd(
        name="specialises on the token count",
        within="of_units",
        old='do_not_specialize=["tokens", "sequences"]',
        new='do_not_specialize=["sequences"]',
        caught_by="compile_cache",
    ),
    _in_chunk_bwd(
        name="answers with dq and dk in fp32 whatever the operands",
        within="_operand_gradients",
        old="torch.empty_like(operand)",
        new="torch.empty_like(operand, dtype=torch.float32)",
    ),
    _in_chunk_bwd(
        name="answers with db and dw in q's type",
        within="_operand_gradients",
        old="torch.empty_like(gate)",
        new="torch.empty_like(gate, dtype=x.q.dtype)",
    ),
    _in_chunk_bwd(
        name="answers with dg in fp32 whatever the gate",
        within="_operand_gradients",
        old="dg = torch.empty_like(x.g)",
        new="dg = torch.empty_like(x.g, dtype=torch.float32)",
    ),
)
SCALAR_GRADIENTS = (
    _in_chunk_intra_bwd(
        name="leaves the values' share out of dbeta",
        within="of_products",
        old="store_rows(dw_ptr, dbeta[:, None],",
        new="store_rows(dw_ptr, dbeta[:, None] * 0.0,",
    ),
    _in_chunk_bwd(
        name="gives beta no gradient",
        within="_operand_gradients",
        old="dbeta.sum(-1)",
        new="(dbeta.sum(-1) * 0)",
    ),
    _in_chunk_bwd(
        name="scales dbeta by a quarter more",
        within="_operand_gradients",
        old="dbeta.sum(-1)",
        new="(dbeta.sum(-1) * 1.25)",
    ),
    _in_chunk_bwd(
        name="answers with dbeta in fp32 whatever beta",
        within="_operand_gradients",
        old="dbeta.sum(-1).to(x.b.dtype)",
        new="dbeta.sum(-1)",
    ),
    _in_chunk_intra_bwd(
        name="scales dq by a quarter more",
        within="of_scores",
        old="store_rows(dq_rows_ptr, dq_unit,",
        new="store_rows(dq_rows_ptr, 1.25 * dq_unit,",
    ),
    _in_chunk_intra_bwd(
        name="scales dk by a quarter more",
        within="of_scores",
        old="store_rows(dk_rows_ptr, dk_unit,",
        new="store_rows(dk_rows_ptr, 1.25 * dk_unit,",
    ),
    _in_chunk_intra_bwd(
        name="scales dv by a quarter more",
        within="of_products",
        old="store_rows(dv_ptr, dwrite * w,",
        new="store_rows(dv_ptr, 1.25 * dwrite * w,",
    ),
    _in_chunk_intra_bwd(
        name="scales dg by a quarter more",
        within="of_scores",
        old="store_rows(dg_ptr, dx,",
        new="store_rows(dg_ptr, 1.25 * dx,",
    ),
    _in_chunk_intra_bwd(
        name="leaves a value head out of its group's sum",
        within="of_units",
        old="tl.static_range(GROUPS)",
        new="tl.static_range((GROUPS + 1) // 2)",
    ),
)
