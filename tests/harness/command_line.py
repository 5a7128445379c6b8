"""Running `bitproof` in tests: specs to name, what a refusal looks like, what a report ends with."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

CHECKOUT = Path(__file__).parents[2]
EXAMPLES = CHECKOUT / "tests" / "example_package"
PAIR = "example_kernels.bitproof_specs"
NARROWING = str(Path(__file__).with_name("narrowing.py"))
FEW = ("--max-examples", "20")

Bitproof = Callable[..., Result]


def refused(result: Result, said: str) -> None:
    """Hold that a command ended with one sentence on standard error and status 2."""
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.startswith("bitproof: ")
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def record_of(result: Result) -> str:
    """The path in the command that a report ends with."""
    lines = [line for line in result.stdout.splitlines() if line.startswith("replay ")]
    assert len(lines) == 1
    return lines[0].split()[3]


def scripts() -> str:
    """A PATH on which the installed command is the one of this Python."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
