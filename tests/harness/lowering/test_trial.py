"""The code of conversions, run without its machine: what released compilers made of them.

`code/` holds what Triton printed for a conversion alone (see `harness.lowering.probe`): the conversion,
the target and the version are in each file's name.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bitproof.harness.lowering.conversions import Conversion, Verdict
from bitproof.harness.lowering.emulator import trial
from bitproof.harness.lowering.emulator.memory import NotModelled
from bitproof.harness.lowering.readers import llir, ptx
from bitproof.harness.lowering.readers.code import Code
from bitproof.oracles import formats
from bitproof.oracles.rounding import round_to

CODE = Path(__file__).parent / "code"
E4M3 = Conversion(source="fp32", target="e4m3")


def code(name: str) -> Code:
    """The code in one file."""
    text = (CODE / name).read_text(encoding="utf-8")
    return ptx.parse(text) if name.endswith(".ptx") else llir.parse(text)


def tried(name: str) -> Verdict:
    """The verdict on one file's conversion."""
    source, _, target = name.split("_")[:3]
    conversion = Conversion(source=source, target=target)
    return trial.verdict(conversion, code(name), nvidia=name.endswith(".ptx"))


@pytest.mark.parametrize("version", ["36", "38"])
def test_sm_89_rounds_e4m3_twice_up_to_triton_3_8(version: str) -> None:
    """By way of fp16: what lies close above halfway goes down; nothing else is wrong."""
    verdict = tried(f"fp32_to_e4m3_sm_89_triton{version}.ptx")
    assert verdict.chain == "cvt.rz.f16.f32, cvt.rn.satfinite.e4m3x2.f16x2"
    assert verdict.beside is not None
    assert str(verdict.beside) == "1.0625001192092896 becomes 1.0, not 1.125"
    assert (verdict.ties, verdict.far, verdict.zero, verdict.nan) == (None,) * 4
    assert verdict.overflow == "saturate"
    assert (verdict.wrong, verdict.tried) == (verdict.beside.count, 2070)


def test_sm_89_rounds_e4m3_once_in_triton_3_9() -> None:
    """One conversion, right on every input that decides."""
    verdict = tried("fp32_to_e4m3_sm_89_triton39.ptx")
    assert verdict.chain == "cvt.rn.satfinite.e4m3x2.f32"
    assert verdict.right


@pytest.mark.parametrize("version", ["36", "38"])
def test_sm_80_rounds_e5m2_ties_away_up_to_triton_3_8(version: str) -> None:
    """Its software takes ties away from zero, does not saturate, and makes a NaN of all ones -0."""
    verdict = tried(f"fp32_to_e5m2_sm_80_triton{version}.ptx")
    assert str(verdict.ties) == "1.125 becomes 1.25, not 1.0"
    assert verdict.overflow == "inf"
    assert str(verdict.nan) == "nan becomes -0.0, not nan"
    assert verdict.beside is None


def test_sm_80_rounds_e5m2_right_in_triton_3_9() -> None:
    """To nearest even, saturating, NaN kept: no input that decides is wrong."""
    verdict = tried("fp32_to_e5m2_sm_80_triton39.ptx")
    assert verdict.right
    assert verdict.overflow == "saturate"


def test_e5m2_to_bf16_loses_infinity_and_nan() -> None:
    """Infinity becomes the number one binade beyond, NaN others there, also in triton 3.9."""
    verdict = tried("e5m2_to_bf16_sm_90_triton39.ptx")
    assert str(verdict.infinity) == "inf becomes 65536.0, not inf"
    assert verdict.nan is not None
    assert verdict.nan.count == 6


def test_sm_80_takes_tiny_bf16_to_the_wrong_e5m2() -> None:
    """In triton 3.6, bf16 below e5m2's normal numbers lands on others than rounding gives."""
    verdict = tried("bf16_to_e5m2_sm_80_triton36.ptx")
    assert verdict.far is not None
    assert abs(verdict.far.value) < 2.0**-14


def test_gfx942_converts_to_e4m3_in_software_that_is_right() -> None:
    """Its two dozen integer operations agree with rounding, saturation and NaN included."""
    verdict = tried("fp32_to_e4m3_gfx942_triton39.llir")
    assert verdict.right
    assert verdict.overflow == "saturate"


def test_gfx942_makes_nan_of_a_few_fp16_beyond_e4m3() -> None:
    """From fp16, 464 to 480 become NaN while everything larger becomes 448."""
    verdict = tried("fp16_to_e4m3_gfx942_triton39.llir")
    assert verdict.overflow == "mixed"
    assert str(verdict.strayed) == "464.25 becomes nan, not 448.0"


def test_gfx942_makes_a_number_of_an_e4m3_nan() -> None:
    """e4m3's NaN becomes the 480 that its bits would hold."""
    verdict = tried("e4m3_to_bf16_gfx942_triton39.llir")
    assert str(verdict.nan) == "nan becomes 480.0, not nan"
    assert verdict.infinity is None


def test_the_emulated_sm_89_is_wrong_exactly_where_the_card_is() -> None:
    """Run on a card, this code gave 2 * 516 033 wrong results of 2^32, all toward zero; so does this.

    They can lie only between a midpoint and the next fp16 above it, 2^13 fp32 steps on.
    """
    e4m3 = formats.E4M3
    middles = formats.midpoints(e4m3)
    starts = formats.bits(middles[middles > 0].astype(np.float32)).astype(np.int64)
    patterns = (starts[:, None] + np.arange(-16, (1 << 14) + 16)).reshape(-1).astype(np.uint32)
    got = trial.outcome(E4M3, code("fp32_to_e4m3_sm_89_triton36.ptx"), patterns, nvidia=True)
    right = round_to(patterns.view(np.float32), e4m3).astype(np.uint64)
    assert np.count_nonzero(got != right) == 516_033
    assert np.all(got[got != right] == right[got != right] - 1)


def test_code_without_a_model_is_never_taken_for_right() -> None:
    """An instruction that the emulation does not know stops it, naming the instruction."""
    text = (CODE / "fp32_to_e4m3_sm_89_triton39.ptx").read_text(encoding="utf-8")
    strange = text.replace("cvt.rn.satfinite.e4m3x2.f32", "cvt.rs.satfinite.e4m3x2.f32")
    with pytest.raises(NotModelled, match=r"cvt\.rs\.satfinite\.e4m3x2\.f32"):
        trial.verdict(E4M3, ptx.parse(strange), nvidia=True)


def test_a_conversion_that_is_off_by_one_step_is_wrong() -> None:
    """The verdict can say no: with toward zero in place of to nearest, half of all results change."""
    text = (CODE / "fp32_to_e5m2_sm_80_triton39.ptx").read_text(encoding="utf-8")
    truncating = text.replace("0x007f007f", "0x00000000")
    conversion = Conversion(source="fp32", target="e5m2")
    verdict = trial.verdict(conversion, ptx.parse(truncating), nvidia=True)
    assert verdict.far is not None
    assert not verdict.right
