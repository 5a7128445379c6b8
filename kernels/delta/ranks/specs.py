"""The gated delta rule by chunks on several ranks, under test: GDN2 and KDA, forward and backward.

Each is the kernel of one rank whose calls are cut: with its bounds, and its oracle, whose storage model knows
where ranks cut.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bitproof.harness.spec import Bitwise, Params, Storage
from bitproof.kernels.delta import invariances as any_ranks
from bitproof.kernels.delta import specs as one_rank
from bitproof.kernels.delta.ranks import faults, invariances, run
from bitproof.kernels.delta.ranks.cases import RanksCase, rank_cases
from bitproof.kernels.delta.ranks.corners import corners, refusals
from bitproof.oracles.delta import answers
from bitproof.oracles.precision import BACKWARD, EXCHANGED, FORWARD, find_policy

_OF_STATES = tuple(point for point in EXCHANGED if "gradient" not in point)
_OF_FORWARD = (*FORWARD, *_OF_STATES, "o")
_OF_BACKWARD = (*FORWARD, *BACKWARD, *EXCHANGED, "gradient")


def _list_stored(points: tuple[str, ...], params: Params) -> frozenset[str]:
    """What ranks exchange is stored where there are several."""
    found = frozenset(points) - find_policy(params["precision"]).kept
    return found if params["ranks"] > 1 else found - {*EXCHANGED}


_INVARIANCES = (
    invariances.ranks_reordered(),
    invariances.one_rank_for_all(),
    invariances.others_silenced(),
    any_ranks.empty_sequence_inserted(),
)


_cut = partial(
    replace,
    case=RanksCase,
    reproducible=Bitwise(runs=2, shown_by=faults.DROPPED.name),
    # The kernels of one rank, which stand for these, and those that sum up a share.
    lowering=replace(one_rank.KDA_CHUNK.lowering, slow=True),
    # Ranks' shares are planned on the host, from offsets that it waits for.
    capturable=False,
    program=invariances.program,
)
_forward = partial(
    _cut,
    run=run.launch,
    storage=Storage(
        points=_OF_FORWARD,
        outputs=("o", "final_state"),
        stored=partial(_list_stored, _OF_FORWARD),
        model=answers.model,
        public=frozenset({"o"}),
    ),
    invariances=_INVARIANCES,
    launches={"cuda": 80, "interpreter": 24},
)
_backward = partial(
    _cut,
    run=run.launch_vjp,
    invariances=(*_INVARIANCES, any_ranks.retained()),
    launches={"cuda": 40, "interpreter": 24},
)
_gradient_storage = partial(
    Storage,
    points=_OF_BACKWARD,
    stored=partial(_list_stored, _OF_BACKWARD),
    model=answers.gradient_model,
    public=frozenset({"gradient"}),
)

GDN2_CP = _forward(
    one_rank.GDN2_CHUNK,
    name="gdn2_cp",
    cases=partial(rank_cases, kind="gdn2", gradient=False),
    corners=corners("gdn2"),
    refusals=refusals("gdn2"),
    faults=faults.STATES,
)
GDN2_CP_VJP = _backward(
    one_rank.GDN2_CHUNK_VJP,
    name="gdn2_cp_vjp",
    cases=partial(rank_cases, kind="gdn2", gradient=True),
    storage=_gradient_storage(outputs=("dq", "dk", "dv", "dg", "d_initial_state", "db", "dw")),
    corners=corners("gdn2", gradient=True),
    refusals=refusals("gdn2", gradient=True),
    faults=faults.GRADIENTS,
)
KDA_CP = _forward(
    one_rank.KDA_CHUNK,
    name="kda_cp",
    cases=partial(rank_cases, kind="kda", gradient=False),
    corners=corners("kda"),
    refusals=refusals("kda"),
    faults=(faults.DROPPED, faults.SWAPPED),
)
KDA_CP_VJP = _backward(
    one_rank.KDA_CHUNK_VJP,
    name="kda_cp_vjp",
    cases=partial(rank_cases, kind="kda", gradient=True),
    storage=_gradient_storage(outputs=("dq", "dk", "dv", "dg", "d_initial_state", "dbeta")),
    corners=corners("kda", gradient=True),
    refusals=refusals("kda", gradient=True),
    faults=(faults.DROPPED, faults.SWAPPED),
)
