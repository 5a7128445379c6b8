"""The versions of the libraries that decide what comes out."""

from __future__ import annotations

import platform

import ml_dtypes
import numpy as np
import torch
from packaging.version import Version


def release(version: str) -> tuple[int, int]:
    """(major, minor) of a version such as "3.9.0", to be compared with another."""
    parsed = Version(version)
    return parsed.major, parsed.minor


def libraries() -> dict[str, str]:
    """Versions of python, torch, triton, numpy and ml_dtypes, and the fusion setting in force."""
    import triton
    from triton import knobs

    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "triton": triton.__version__,
        "numpy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "fp_fusion": str(int(knobs.language.default_fp_fusion)),
    }
