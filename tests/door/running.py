"""What tests that run the properties over specs of their own share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bitproof.plugin import PROPERTIES

RIGHT = """
from tests.harness.plain import variant
from tests.harness.starting import scaled_beside_a_kernel

SPEC = variant(name="right", run=scaled_beside_a_kernel)
"""
ENVIRONMENT = (
    "BITPROOF_LANE",
    "BITPROOF_DEVICES",
    "CI",
    "CUDA_VISIBLE_DEVICES",
    "TRITON_CACHE_DIR",
    "TRITON_DEFAULT_FP_FUSION",
    "TRITON_INTERPRET",
)

CHECKS = ("agreement", "invariances", "memory", "reproducibility")
FILES = [str(PROPERTIES / f"test_{check}.py") for check in CHECKS]
Run = Callable[..., pytest.RunResult]


def read_summary(folder: Path = Path()) -> dict[str, Any]:
    """What the run in `folder` wrote of itself."""
    read: dict[str, Any] = json.loads((folder / ".bitproof" / "summary.json").read_text())
    return read
