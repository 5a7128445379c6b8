"""What the code that other targets get for the quantisers may do, and why that is right or known."""

from __future__ import annotations

from bitproof.harness.spec import Accepted, Lowering
from bitproof.harness.targets.architectures import ALL
from bitproof.oracles import formats

ANYWHERE = Lowering(supports=ALL)
# sm_80 and sm_86 have no e4m3, and Triton refuses the type there.
WITH_E4M3 = tuple(target for target in ALL if target not in ("sm_80", "sm_86"))
ON_GRID = Lowering(
    supports=WITH_E4M3,
    accepted=(
        Accepted(
            hazard="rounding twice",
            because="the value is on the grid of e4m3 before it is converted: going through fp16 is exact",
            targets=("sm_89",),
            conversions={"fp32 to e4m3": 126},
            on_grid=True,
        ),
        Accepted(
            hazard="not analysed",
            because="gfx950's own conversion has no model here; what it is given is on the grid of e4m3 and "
            "at most 448, where nothing is left to round: NaN alone depends on it",
            targets=("gfx950",),
            conversions={"fp32 to e4m3": 0},
            on_grid=True,
        ),
    ),
)


# Of e5m2 on targets without fp8: on how many of the inputs that decide each conversion is wrong.
_IN_SOFTWARE = {
    "lost specials": {"fp32 to e5m2": 8, "bf16 to e5m2": 2, "fp16 to e5m2": 510},
    "overflow policy": {"fp32 to e5m2": 0, "bf16 to e5m2": 8064, "fp16 to e5m2": 0},
    "rounding twice": {"bf16 to e5m2": 54},
    "ties away": {"fp32 to e5m2": 124, "bf16 to e5m2": 126, "fp16 to e5m2": 124},
    "wrong conversion": {"bf16 to e5m2": 642},
}


def of_cast(target: str) -> Lowering:
    """What Triton's own conversion does up to 3.8: right on sm_90, and shown to be wrong elsewhere."""
    if formats.by_name(target).bits != 8:
        return ANYWHERE
    through_fp16 = Accepted(
        hazard="rounding twice",
        because="up to triton 3.8 sm_89 goes by way of fp16, which `--lane cuda:sm_89` shows",
        targets=("sm_89",),
        conversions={"fp32 to e4m3": 126} if target == "e4m3" else {"fp32 to e5m2": 124},
    )
    unknown = Accepted(
        hazard="not analysed",
        because="gfx950's own conversions have no model here, so that nothing is claimed of them",
        targets=("gfx950",),
        conversions={f"{source} to {target}": 0 for source in ("fp32", "bf16", "fp16")},
    )
    if target == "e4m3":
        overflowing = Accepted(
            hazard="overflow policy",
            because="gfx942 turns fp16 between 464 and 480 into NaN; `round_e4m3` clamps first",
            targets=("gfx942",),
            conversions={"fp16 to e4m3": 126},
        )
        accepted = (through_fp16, overflowing, unknown)
        return Lowering(supports=WITH_E4M3, accepted=accepted)
    in_software = tuple(
        Accepted(
            hazard=hazard,
            because="up to triton 3.8 targets without fp8 convert to e5m2 in software, wrongly",
            targets=("sm_80", "sm_86"),
            conversions=conversions,
        )
        for hazard, conversions in _IN_SOFTWARE.items()
    )
    return Lowering(supports=ALL, accepted=(through_fp16, unknown, *in_software))
