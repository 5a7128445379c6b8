"""What the installed Triton makes of conversions, which changed between versions.

`ci/matrix.py` runs these under every version that is supported.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata

from packaging.version import Version

from bitproof.harness.lowering.findings import Reading

Read = Callable[[str, str], Reading]

FIXED = Version(metadata.version("triton")).release >= (3, 9)


def names(reading: Reading) -> set[str]:
    """The hazards a reading names."""
    return {hazard.name for hazard in reading.hazards}


def test_sm_89_rounds_e4m3_twice_before_triton_3_9(read: Read) -> None:
    """Up to 3.8 by way of fp16, from 3.9 once; sm_90 always once."""
    assert names(read("fp32_to_e4m3", "sm_89")) == (set() if FIXED else {"rounding twice"})
    assert names(read("fp32_to_e4m3", "sm_90")) == set()


def test_sm_80_and_sm_86_refuse_e4m3(read: Read) -> None:
    """The type does not exist there, whatever the version."""
    for target in ("sm_80", "sm_86"):
        (refusal,) = read("fp32_to_e4m3", target).refusals
        assert refusal.sentence.startswith("type fp8e4nv not supported in this architecture")


def test_sm_80_rounds_e5m2_wrongly_before_triton_3_9(read: Read) -> None:
    """Up to 3.8 ties go away from zero and NaN is lost, from bf16 tiny values too; in 3.9 all is right."""
    fp32, bf16 = (names(read(name, "sm_80")) for name in ("fp32_to_e5m2", "bf16_to_e5m2"))
    assert fp32 == (set() if FIXED else {"ties away", "lost specials"})
    assert ({"ties away", "wrong conversion"} <= bf16) == (not FIXED)
    assert not (FIXED and bf16)


def test_e5m2_to_bf16_loses_infinity_and_nan(read: Read) -> None:
    """In every version up to 3.9, on every target that does it in software."""
    for target in ("sm_80", "sm_89", "sm_90"):
        (hazard,) = read("e5m2_to_bf16", target).hazards
        assert hazard.name == "lost specials"
        assert "becomes" in hazard.detail
