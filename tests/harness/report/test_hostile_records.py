"""Records are data: a damaged or hostile file runs nobody's code, and is one sentence."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from bitproof.harness.case import build
from bitproof.harness.errors import BitproofError
from bitproof.harness.report import records
from bitproof.harness.subjects.ownership import find_owner
from tests.harness import plain
from tests.harness.conftest import Write
from tests.harness.report.test_records import FINDINGS, FOUND

INPUTS = build(plain.CASE, plain.PlainLane().device)

TEXTS = st.one_of(
    st.text(max_size=20),
    st.text("\x00\x07\x1b[31m\u202e\n", min_size=1, max_size=9),
    st.sampled_from(
        (
            "/dev/zero",
            "../hostile.py",
            "hostile",
            "hostile:SPEC",
            "antigravity",
            "os.path",
            "..",
            ".",
        )
    ),
    st.builds(lambda part, times: part * times, st.text("aB._", max_size=5), st.integers(1, 80)),
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from((10**11, -1, 2**63, 10**401, 1e308)),
        st.floats(),
        TEXTS,
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
NAMES = ("kernel", "spec", "check", "outcome", "case", "captured", "finding", "lane", "versions")


@st.composite
def hostile(draw: st.DrawFn, whole: dict[str, Any]) -> bytes:
    """A record with fields exchanged, added or dropped, or cut anywhere."""
    changed: dict[str, Any] = {**whole, "spec": draw(TEXTS)}
    for name in draw(st.lists(st.sampled_from((*NAMES, "format", "fault", "new")), max_size=3)):
        changed[name] = draw(VALUES)
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=1)):
        changed.pop(name, None)
    text = json.dumps(changed).encode()
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


def test_no_record_runs_code_that_nobody_installed(write: Write, tmp_path: Path) -> None:
    """Of 1000 damaged and hostile ones, each is one printable sentence, soon."""
    write("hostile.py", "raise SystemExit('executed')\n")
    path = records.save(FOUND, "agreement", INPUTS, FINDINGS, {}, folder=tmp_path)
    whole = json.loads(path.read_text())

    @settings(
        max_examples=1000,
        deadline=None,
        database=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(text=hostile(whole))
    @example(text=json.dumps({**whole, "spec": "hostile"}).encode())
    @example(text=json.dumps({**whole, "format": 10**401}).encode())
    def replay(text: bytes) -> None:
        path.write_bytes(text)
        before, began = set(sys.modules), time.monotonic()
        with pytest.raises(BitproofError) as caught:
            records.find_subject(records.load(path))
        said = str(caught.value)
        assert said.isprintable(), said
        assert time.monotonic() - began < 20.0
        assert "hostile" not in {name.partition(".")[0] for name in set(sys.modules) - before}

    replay()


@pytest.mark.parametrize(
    ("reference", "owner"),
    [
        ("bitproof.kernels", "bitproof"),
        ("kernels.casts", "bitproof"),
        ("numpy.linalg", "numpy "),
        ("hypothesis:SPEC", "hypothesis "),
    ],
)
def test_what_an_installed_distribution_owns_is_its(reference: str, owner: str) -> None:
    """Known by its files, without an import."""
    assert find_owner(reference).startswith(owner)


@pytest.mark.parametrize(
    "reference", ["json", "antigravity", "theirs", "theirs.py", "numpy.no", ""]
)
def test_nobody_owns_what_merely_lies_there(write: Write, reference: str) -> None:
    """The standard library, the current folder and the import path do not count, whatever they say."""
    write("theirs.py", "raise SystemExit('executed')\n")
    write("theirs-1.dist-info/METADATA", "Name: theirs\nVersion: 1\n")
    write("theirs-1.dist-info/RECORD", "theirs.py,,\n")
    find_owner.cache_clear()
    assert find_owner(reference) == ""
