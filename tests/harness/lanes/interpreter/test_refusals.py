"""What the lane refuses: one kernel for every refusal, and the outcome that a check makes of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from bitproof.harness import checks
from bitproof.harness.case import Inputs
from bitproof.harness.errors import Uncompilable
from bitproof.harness.lanes.interpreter import state
from bitproof.harness.lanes.interpreter.lane import InterpreterLane
from bitproof.harness.outcomes import Outcome
from bitproof.harness.targets.versions import release
from tests.harness.plain import variant

FAILED, UNSUPPORTED = Outcome.FAILED, Outcome.UNSUPPORTED
CHAINS_COMPILE = release(triton.__version__) >= (3, 9)


@triton.jit
def add(x, y):
    """The sum of a number with itself, in its own type."""
    i = tl.arange(0, 16)
    tl.store(y + i, tl.load(x + i) + tl.load(x + i))


@triton.jit
def negate(x, y):
    """The number with the other sign, in its own type."""
    i = tl.arange(0, 16)
    tl.store(y + i, -tl.load(x + i))


@triton.jit
def compare(x, y):
    """Whether a number is below itself, compared in its own type."""
    i = tl.arange(0, 16)
    tl.store(y + i, (tl.load(x + i) < tl.load(x + i)).to(tl.float32))


@triton.jit
def convert(x, y):
    """To the type of `y`."""
    i = tl.arange(0, 16)
    tl.store(y + i, tl.load(x + i).to(y.dtype.element_ty))


@triton.jit
def truncate(x, y):
    """To the type of `y`, toward zero."""
    i = tl.arange(0, 16)
    tl.store(y + i, tl.load(x + i).to(y.dtype.element_ty, fp_downcast_rounding="rtz"))


@triton.jit
def fill_fp8(x, y):
    """A constant of an fp8 type."""
    tl.store(y + tl.arange(0, 16), tl.full([16], 1.5, y.dtype.element_ty))


@triton.jit
def multiply_shallow(x, y):
    """A product over eight terms, too few for the tensor cores of one vendor."""
    i, k = tl.arange(0, 16), tl.arange(0, 8)
    a = tl.load(x + k[None, :] + 0 * i[:, None])
    tl.store(y + i[:, None] * 0 + i[None, :], tl.dot(a, tl.trans(a)))


@triton.jit
def clip(x, y):
    """Between a constant and its negative."""
    i = tl.arange(0, 16)
    tl.store(y + i, tl.clamp(tl.load(x + i), -3.0, 3.0))


@triton.jit
def take_tanh(x, y):
    """A libdevice function."""
    i = tl.arange(0, 16)
    tl.store(y + i, libdevice.tanh(tl.load(x + i)))


@triton.jit
def take_next(x, y):
    """A libdevice function that the lane does not have."""
    i = tl.arange(0, 16)
    tl.store(y + i, libdevice.nextafter(tl.load(x + i), 0.0))


@triton.jit
def conjoin(x, y):
    """`and` of numbers."""
    a = tl.load(x)
    b = a and a
    tl.store(y, b)


@triton.jit
def invert(x, y):
    """`not` of a number."""
    b = not tl.load(x)
    tl.store(y, b.to(tl.float32))


@triton.jit
def chain(x, y):
    """A chain of comparisons."""
    b = 0 < tl.load(x) < 5
    tl.store(y, b.to(tl.float32))


@triton.jit
def branch(x, y):
    """A branch on a block."""
    i = tl.arange(0, 16)
    if tl.load(x + i) > 0:
        tl.store(y + i, tl.load(x + i))


@triton.jit
def wait(x, y):
    """Program 0 waits for what program 1 does."""
    if tl.program_id(0) == 0:
        while tl.atomic_add(y, 0.0) == 0.0:
            pass
    else:
        tl.atomic_add(y, 1.0)


@triton.jit
def assemble(x, y):
    """A line of PTX."""
    i = tl.arange(0, 16)
    a = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [tl.load(x + i)], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(y + i, a)


E4M3, E5M2, FNUZ = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz
F16, F32, F64, BF16 = torch.float16, torch.float32, torch.float64, torch.bfloat16

# Kernel, type of x, type of y, outcome, what the finding or reason says.
REFUSALS: list[tuple[Any, torch.dtype, torch.dtype, Outcome, str]] = [
    (add, E4M3, E4M3, FAILED, "no target compiles arithmetic on fp8e4nv"),
    (add, E5M2, E5M2, FAILED, "no target compiles arithmetic on fp8e5"),
    (negate, E4M3, E4M3, FAILED, "no target compiles the negation of fp8e4nv"),
    (compare, E5M2, F32, FAILED, "no target compiles arithmetic on fp8e5"),
    (convert, F32, FNUZ, UNSUPPORTED, "the interpreter does not convert fp32 to fp8e4b8"),
    (convert, E4M3, F64, FAILED, "no target compiles a conversion of fp8e4nv to fp64"),
    (convert, E4M3, E5M2, FAILED, "no target compiles a conversion of fp8e4nv to fp8e5"),
    (truncate, F16, E5M2, UNSUPPORTED, "does not convert fp16 to fp8e5 toward zero"),
    (truncate, F64, BF16, FAILED, "no target compiles a conversion of fp64 to bf16 toward zero"),
    (take_tanh, F16, F16, FAILED, "no target compiles libdevice.tanh of fp16"),
    (take_tanh, BF16, BF16, FAILED, "no target compiles libdevice.tanh of bf16"),
    (conjoin, F32, F32, FAILED, "no target compiles and, or and not of fp32"),
    (invert, F32, F32, FAILED, "no target compiles and, or and not of fp32"),
    (branch, F32, F32, FAILED, "no target compiles the truth of a block"),
    (multiply_shallow, BF16, F32, UNSUPPORTED, "needs K >= 16 on sm_80 to sm_120"),
    (clip, F64, F64, UNSUPPORTED, "sm_90 and later cannot clip fp64"),
    (fill_fp8, F32, E4M3, UNSUPPORTED, "no fp8 constant"),
    (take_next, F32, F32, UNSUPPORTED, "no libdevice.nextafter"),
    (wait, F32, F32, UNSUPPORTED, "waits for another one"),
    (assemble, F32, F32, UNSUPPORTED, "the interpreter cannot run assemble"),
]


def judge(kernel: Any, x: torch.dtype, y: torch.dtype) -> Any:
    """What agreement makes of a launcher of `kernel` on sixteen zeros."""

    def run(tensors: Any, params: Any) -> dict[str, torch.Tensor]:
        out = torch.zeros(16, dtype=torch.float32).to(y)
        kernel[(2,)](tensors["x"], out)
        return {"y": out}

    inputs = Inputs(tensors={"x": torch.zeros(16).to(x)}, params={})
    return checks.run("agreement", variant(run=run), inputs, InterpreterLane())


@pytest.mark.parametrize(
    ("kernel", "x", "y", "outcome", "text"),
    REFUSALS,
    ids=[f"{row[0].fn.__name__}-{row[1]}-{row[2]}" for row in REFUSALS],
)
def test_a_refused_operation_ends_in_an_outcome(
    kernel: Any, x: torch.dtype, y: torch.dtype, outcome: Outcome, text: str
) -> None:
    """Failed where no target compiles it, unsupported where one does, with kernel and line."""
    findings = judge(kernel, x, y)
    assert findings.outcome is outcome
    assert text in findings.text
    assert f"{kernel.fn.__name__}" in findings.text
    assert f"{__file__}:" in findings.text


@pytest.mark.skipif(CHAINS_COMPILE, reason="this triton compiles chains of comparisons")
def test_chains_of_comparisons_fail_before_triton_3_9() -> None:
    """No target compiles one there."""
    assert judge(chain, F32, F32).outcome is FAILED


@triton.jit
def by_block_pointer(x, y):
    """A copy through a block pointer, which triton 3.9 has no more."""
    source = tl.make_block_ptr(x, (16,), (1,), (0,), (16,), (0,))
    tl.store(y + tl.arange(0, 16), tl.load(source))


@pytest.mark.skipif(release(triton.__version__) < (3, 9), reason="the language has block pointers")
def test_what_the_language_has_no_more_is_not_sent_to_another_lane() -> None:
    """No target compiles it, so that the kernel fails, with the language's own remedy."""
    InterpreterLane()
    with (
        state.session(state.Session()),
        pytest.raises(Uncompilable, match=r"no target compiles by_block_pointer at .*descriptor"),
    ):
        by_block_pointer[(1,)](torch.ones(16), torch.zeros(16))
