"""flash-linear-attention's chunked KDA and GDN2, held to the contracts of the gated delta rule.

    bitproof check --spec tests/other_packages/fla_specs.py

`docs/other-packages.md` tells what was found.
"""

from __future__ import annotations

import dataclasses
import warnings

from bitproof import KernelSpec
from bitproof.kernels.delta import contracts

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that there is no GPU
    from fla.ops.gdn2 import chunk_gdn2
    from fla.ops.kda import chunk_kda


def _launch(operator, names, t, p):
    """One call on packed sequences, a batch of one."""
    o, state = operator(
        *(t[name][None] for name in names),
        **{name: t.get(name) for name in ("A_log", "dt_bias", "initial_state", "cu_seqlens")},
        **{name: p[name] for name in ("scale", "state_v_first")},
        use_qk_l2norm_in_kernel=p["normalise"],
        use_gate_in_kernel=p["gate"] != "log",
        lower_bound=p["lower_bound"] if p["gate"] == "bounded" else None,
        safe_gate=p["gate"] == "bounded" and t["q"].is_cuda,  # it gathers, which no interpreter can
        output_final_state=True,
    )
    return {"o": o[0], "final_state": state}


def _taken(cases):
    """Cases as fla takes them: it has no rows past the last sequence, and one policy."""
    return lambda scale: cases(scale=scale).map(
        lambda case: dataclasses.replace(case, slack=0, precision="upstream")
    )


KDA = KernelSpec(
    contract=contracts.KDA,
    name="fla_kda",
    run=lambda t, p: _launch(chunk_kda, ("q", "k", "v", "g", "beta"), t, p),
    cases=_taken(contracts.KDA.cases),
    corners=(),
)

GDN2 = KernelSpec(
    contract=contracts.GDN2,
    name="fla_gdn2",
    run=lambda t, p: _launch(chunk_gdn2, ("q", "k", "v", "g", "b", "w"), t, p),
    cases=_taken(contracts.GDN2.cases),
    corners=(),
    refuses=(AssertionError,),  # grouped heads
)
