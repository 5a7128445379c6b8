"""Running `bitproof attribute` in tests: on the kernel of `storing`, whose errors have a closed form."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from bitproof.harness import case
from tests.harness.storing import PartsCase

STORING = str(Path(__file__).with_name("storing.py"))

# The answer's RMS is (1 + 2^-9) * sqrt(16 + 4 + 1), the errors' 2^-9 times 4, 2 and 1.
UNIT = 2.0**-9 / (1 + 2.0**-9)
ALONE = {"u": 4 * UNIT / math.sqrt(21), "w": 2 * UNIT / math.sqrt(21), "v": UNIT / math.sqrt(21)}

Attribute = Callable[..., Result]


def close(value: float) -> Any:
    """Float64 sums of a few values are as near as this to the closed form."""
    return pytest.approx(value, rel=2.0**-48)


def plain(**fields: Any) -> Any:
    """A case as JSON reads it."""
    return json.loads(json.dumps(case.encode(PartsCase(**fields))))


def parts(folder: Path, **fields: Any) -> str:
    """A file that holds one case."""
    path = folder / "case.json"
    path.write_text(json.dumps(plain(**fields)))
    return str(path)


def variant(write: Callable[[str, str], Path], **changes: str) -> str:
    """A spec file: the kernel with known errors, with these fields as written."""
    fields = ", ".join(f"{name}={value}" for name, value in changes.items())
    digest = abs(hash(fields))
    text = (
        "import dataclasses\n"
        "from hypothesis import strategies as st\n"
        "from bitproof.harness.errors import Refused\n"
        "from tests.harness import storing\n\n"
        "def raised(error):\n    raise error\n\n"
        f"SPEC = dataclasses.replace(storing.SPEC, {fields})\n"
    )
    return str(write(f"varied_{digest}.py", text))
