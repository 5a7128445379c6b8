"""Records: what is written replays, appears whole or not at all, and anything else is one sentence."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from bitproof.harness import case as cases
from bitproof.harness.case import Inputs
from bitproof.harness.errors import EnvironmentUnfit, UsageError
from bitproof.harness.outcomes import CheckResult, Finding, Outcome
from bitproof.harness.report import records
from bitproof.harness.report.records import Captured
from bitproof.harness.subjects.discovery import FoundSpec
from tests.harness import plain

FOUND = FoundSpec(spec=plain.SPEC, reference="tests.harness.plain", module=plain)
INPUTS = cases.build(plain.CASE, torch.device("cpu"))
FINDINGS = CheckResult(
    outcome=Outcome.FAILED,
    findings=(
        Finding(
            summary="y[0, 0] is nan, expected 1.0",
            lines=("got nan",),
            facts={"distance": math.inf, "wrong": 1},
        ),
    ),
)
CAPTURED = Captured(path="x.safetensors", sha256="00", params={"factor": 2})
VERSIONS = {"lane": "interpreter", "torch": torch.__version__}


def _save(folder: Path, **changes: Any) -> Path:
    inputs = changes.pop("inputs", INPUTS)
    found = changes.pop("found", FOUND)
    return records.save(found, "agreement", inputs, FINDINGS, VERSIONS, folder=folder, **changes)


def test_a_record_holds_what_a_replay_needs(tmp_path: Path) -> None:
    """Kernel, spec, check, case, lane, versions, finding, and the command that replays it."""
    path = _save(tmp_path)
    record = records.load(path)
    assert (record.kernel, record.spec, record.check, record.outcome, record.lane) == (
        "scaled_rows",
        "tests.harness.plain",
        "agreement",
        "failed",
        "interpreter",
    )
    assert cases.decode(plain.RowsCase, record.case) == plain.CASE
    assert record.captured is None
    assert record.versions == {name: str(value) for name, value in VERSIONS.items()}
    assert record.replay == records.replay_command(path, "tests.harness.plain")
    assert record.finding[0]["summary"] == "y[0, 0] is nan, expected 1.0"
    assert records.find_subject(record, "tests.harness.plain").spec is plain.SPEC
    assert records.owner_of(record, "tests.harness.plain") == "--spec tests.harness.plain"


def test_an_infinite_distance_is_still_json(tmp_path: Path) -> None:
    """JSON has no infinity, and a strict reader of it reads every record."""

    def foreign(constant: str) -> None:
        raise AssertionError(constant)

    plain_json = json.loads(_save(tmp_path).read_text(), parse_constant=foreign)
    assert plain_json["finding"][0]["distance"] is None


def test_the_same_case_gives_the_same_file(tmp_path: Path) -> None:
    """And any other case, fault or captured tensors another one; names say kernel and check."""
    first = _save(tmp_path)
    assert _save(tmp_path) == first
    assert re.fullmatch(r"scaled_rows-agreement-[0-9a-f]{12}\.json", first.name)
    bare = Inputs(tensors=INPUTS.tensors, params={})
    others = {
        _save(tmp_path, inputs=dataclasses.replace(INPUTS, case=plain.RowsCase(seed=2))),
        _save(tmp_path, found=dataclasses.replace(FOUND, fault="off by a factor")),
        _save(tmp_path, inputs=bare, captured=CAPTURED),
        _save(tmp_path, inputs=bare, captured=dataclasses.replace(CAPTURED, sha256="01")),
        _save(tmp_path, inputs=bare, captured=dataclasses.replace(CAPTURED, params={})),
    }
    assert len(others | {first}) == 6
    assert set(tmp_path.rglob("*.json")) == others | {first}


def test_captured_tensors_are_recorded_by_file_and_digest(tmp_path: Path) -> None:
    """In the place of a case."""
    path = _save(tmp_path, inputs=Inputs(tensors={}, params={}), captured=CAPTURED)
    record = records.load(path)
    assert record.case is None
    assert record.captured == CAPTURED


def test_workers_may_write_one_record_at_once(tmp_path: Path) -> None:
    """Whoever reads meanwhile sees a whole record."""
    path = _save(tmp_path)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            _save(tmp_path)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            assert records.load(path).kernel == "scaled_rows"
    finally:
        stop.set()
        writer.join()


def test_a_write_that_fails_leaves_the_earlier_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk costs the new record, not the old one."""
    path = _save(tmp_path)
    before = path.read_bytes()

    def full(self: Path, *args: Any, **kwargs: Any) -> None:
        self.write_text("{")
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(EnvironmentUnfit, match=r"cannot be written \(no space left on device\)"):
        _save(tmp_path)
    assert path.read_bytes() == before


def _edited(tmp_path: Path, **changes: Any) -> str:
    record = json.loads(_save(tmp_path).read_text())
    record.update(changes)
    return json.dumps({name: value for name, value in record.items() if value != "drop"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a record: it is not valid JSON"),
        ('{"format": 1, "ker', "is not a record: it is not valid JSON"),
        ("\xff", "is not a record written by bitproof|is not valid JSON"),
        ("[" * 100_000, "is not a record: it is not valid JSON"),
        ("[]", "is not a record written by bitproof"),
        ('{"kernel": "x"}', "is not a record written by bitproof"),
        ('{"format": 1, "name": "another tool\'s"}', "is not a record written by bitproof"),
        (
            {"format": 2},
            "has record format 2, this version reads 1: use the bitproof that wrote it",
        ),
        ({"format": "1"}, "has record format '1', this version reads 1"),
        ({"format": True}, "is a damaged record: Expected `int`, got `bool`"),
        ({"kernel": 3}, r"is a damaged record: Expected `str`, got `int` - at `\$\.kernel`"),
        ({"check": "drop"}, "is a damaged record: Object missing required field `check`"),
        ({"case": None}, "is a damaged record: it needs either a case or captured tensors"),
        (
            {"captured": {"path": "x", "sha256": "0", "params": {}}},
            "is a damaged record: it needs either a case or captured tensors",
        ),
        ({"captured": {"path": "x"}, "case": None}, "is a damaged record: Object missing required"),
    ],
)
def test_a_damaged_or_foreign_file_is_one_sentence(
    tmp_path: Path, text: str | dict[str, Any], message: str
) -> None:
    """It names the file, says what is wrong with it, and leaves it as it was."""
    path = tmp_path / "record.json"
    path.write_text(
        text if isinstance(text, str) else _edited(tmp_path, **text), encoding="latin-1"
    )
    before = path.read_bytes()
    with pytest.raises(UsageError, match=message) as caught:
        records.load(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, name: str) -> None:
    """Missing, or a folder."""
    with pytest.raises(UsageError, match=r"cannot be read: (No such file|Is a directory)"):
        records.load(tmp_path / name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spec": "no_such_package"}, "about code in 'no_such_package', which belongs to no"),
        ({"spec": "numpy", "kernel": "x"}, "--spec numpy: no KernelSpec in that module"),
        ({"spec": "bitproof.kernels", "kernel": "renamed"}, "unknown kernel 'renamed': there are"),
    ],
)
def test_a_record_of_something_gone_is_one_sentence(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    """Its spec was moved or its kernel renamed."""
    record = dataclasses.replace(records.load(_save(tmp_path)), **changes)
    with pytest.raises(UsageError, match=message):
        records.find_subject(record)


def test_records_of_planted_faults_lie_apart(tmp_path: Path) -> None:
    """A folder holds what counts against kernels, one beneath it what somebody planted."""
    real = _save(tmp_path)
    planted = _save(tmp_path, found=dataclasses.replace(FOUND, fault="off by a factor"))
    assert (real.parent, planted.parent) == (tmp_path, tmp_path / "planted")
    assert records.load(planted).replay.startswith(f"bitproof replay {planted} --spec ")
