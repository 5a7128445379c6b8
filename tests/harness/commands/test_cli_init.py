"""A spec that is written from a signature runs, and says what a person must decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitproof.harness.subjects.discovery import find
from tests.harness.command_line import Bitproof, refused

LAUNCHERS = """
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x, y, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)

def double(x: torch.Tensor, factor: float = 2.0, half: bool = False, out: torch.Tensor | None = None):
    y = torch.empty_like(x)
    if x.numel():
        kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), factor, BLOCK=64)
    return y

def double_reference(x, factor, half):
    return x * factor

def split(x, weight, cu_seqlens, *, expert, count: int, eps: float):
    return x, weight
"""


def test_a_spec_with_a_reference_beside_it_checks_its_kernel(
    bitproof: Bitproof, tmp_path: Path
) -> None:
    """From a file with launcher and reference to a verdict, with nothing typed between."""
    (tmp_path / "double_up.py").write_text(LAUNCHERS)
    written = bitproof("init", "double_up.py:double")
    assert written.exit_code == 0
    assert "bitproof check double --spec double_up_spec.py" in written.stdout
    text = Path("double_up_spec.py").read_text()
    assert text.count("DECIDE") >= 5
    assert "out" not in [word.strip('":') for word in text.split()]
    checked = bitproof(
        *("check", "double", "--spec", "double_up_spec.py", "--lane", "interpreter"),
        *("--check", "agreement", "--max-examples", "10"),
    )
    assert checked.exit_code == 0, checked.stdout
    assert "agreement" in checked.stdout


def test_every_parameter_is_declared(bitproof: Bitproof, tmp_path: Path) -> None:
    """Tensors by their names, plain parameters by their annotations, several outputs each with a bound."""
    (tmp_path / "split_up.py").write_text(LAUNCHERS)
    assert bitproof("init", "split_up.py:split", "--output", "mine.py").exit_code == 0
    (found,) = find(["mine.py"])
    contract = found.spec.contract
    assert contract is not None
    assert {name: type(one).__name__ for name, one in contract.inputs.items()} == {
        **dict.fromkeys(("x", "weight"), "Tensor"),
        "cu_seqlens": "Offsets",
        "expert": "Index",
    }
    assert set(contract.params) == {"count", "eps"}
    assert set(contract.outputs) == {"y0", "y1"}
    assert found.mistakes == ()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("launchers.py", "init takes FILE:function"),
        ("launchers.py:kernel", "'kernel' is a kernel: name the Python function that launches it"),
        ("launchers.py:triple", "no function 'triple': there are double, double_reference, split"),
        ("absent.py:double", "absent.py: No such file"),
        ("broken.py:double", "it is no Python file"),
    ],
)
def test_what_cannot_be_written_is_said(
    bitproof: Bitproof, tmp_path: Path, function: str, said: str
) -> None:
    """One sentence, status 2."""
    (tmp_path / "launchers.py").write_text(LAUNCHERS)
    (tmp_path / "broken.py").write_text("def double(:")
    refused(bitproof("init", function), said)


def test_no_spec_is_replaced(bitproof: Bitproof, tmp_path: Path) -> None:
    """What a person decided stays."""
    (tmp_path / "launchers.py").write_text(LAUNCHERS)
    (tmp_path / "launchers_spec.py").write_text("decided")
    refused(bitproof("init", "launchers.py:double"), "exists already: name another file")
    assert (tmp_path / "launchers_spec.py").read_text() == "decided"
