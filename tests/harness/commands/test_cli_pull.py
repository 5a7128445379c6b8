"""`bitproof pull`: what a run elsewhere left is taken out of a zip, listed, and replays."""

from __future__ import annotations

import json
import os
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis.database import GitHubArtifactDatabase
from hypothesis.errors import HypothesisWarning

from bitproof.harness.commands import pull
from tests.harness.command_line import PAIR, Bitproof, record_of, refused
from tests.harness.commands.test_cli_report import ENTRY, summary


def _zip(path: Path, **files: str | bytes) -> Path:
    """A zip of these files; `__` in a name is a slash."""
    with zipfile.ZipFile(path, "w") as held:
        for name, content in files.items():
            held.writestr(name.replace("__", "/") + ".json", content)
    return path


def _night(bitproof: Bitproof, folder: Path) -> Path:
    """The zip of a run that found a planted fault, recorded as if it were the kernel's own."""
    options = ("--spec", PAIR, "--fault", "scales the sum", "--check", "agreement")
    record = Path(record_of(bitproof("check", "scale_add", *options)))
    failed = {**ENTRY, "outcome": "failed", "record": str(record)}
    told = summary(folder, failed).read_bytes()
    return _zip(
        folder / "night.zip",
        summary=told,
        failures__one=record.read_bytes(),
        failures__damaged="{",
        examples__kept="bytes",
        cache__code="compiled",
    )


def test_what_failed_elsewhere_is_listed_and_replays(bitproof: Bitproof, tmp_path: Path) -> None:
    """The verdict, each record with its command; only what a run leaves is taken."""
    result = bitproof("pull", str(_night(bitproof, tmp_path)))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "4 files in .bitproof/pulled/night"
    assert lines[1] == "fell short: 1 failed"
    assert lines[3].endswith(
        "is a damaged record: it is not valid JSON (Input data was truncated)"
    ) or ("damaged.json is not a record" in lines[3])
    assert lines[4].startswith("scale_add agreement failed: y[")
    again = bitproof(*lines[5].split()[1:])
    assert again.exit_code == 1
    assert "scale_add with planted fault 'scales the sum': agreement failed" in again.stdout
    assert not Path(".bitproof/pulled/night/cache").exists()
    assert Path(".bitproof/pulled/night/examples/kept.json").read_bytes() == b"bytes"


def test_an_artifact_is_fetched_by_hypothesis_own_database(
    bitproof: Bitproof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest of that name, of a repository or its address; asked anew each time."""
    night = _night(bitproof, tmp_path)
    asked = []

    def fetch(self: GitHubArtifactDatabase) -> Path:
        asked.append((self.owner, self.repo, self.artifact_name))
        path = self.path / f"2026-01-0{len(asked)}T00_00_00+00_00.zip"
        path.write_bytes(night.read_bytes())
        return path

    monkeypatch.setattr(GitHubArtifactDatabase, "_fetch_artifact", fetch)
    for source in ("some/kernels", "https://github.com/some/kernels"):
        result = bitproof("pull", source, "--artifact", "night-1", "--to", "here")
        assert result.exit_code == 1, result.output
        assert result.stdout.startswith("4 files in here\nfell short: 1 failed\n")
    assert asked == [("some", "kernels", "night-1")] * 2


def test_what_cannot_be_fetched_is_one_sentence(
    bitproof: Bitproof, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what Hypothesis says of it, which is a warning there."""

    def fail(self: GitHubArtifactDatabase) -> None:
        warnings.warn("Could not connect to GitHub.", HypothesisWarning, stacklevel=2)

    monkeypatch.setattr(GitHubArtifactDatabase, "_fetch_artifact", fail)
    said = "no artifact 'bitproof' of some/kernels can be fetched: Could not connect to GitHub."
    refused(bitproof("pull", "some/kernels"), said)
    refused(bitproof("pull", "nothing"), "nothing is neither a zip file that is there nor OWNER")
    refused(bitproof("pull", "gone.zip"), "gone.zip cannot be read: No such file")


def test_a_run_without_failures_is_status_0(bitproof: Bitproof, tmp_path: Path) -> None:
    """And it says so."""
    told = summary(tmp_path, ENTRY).read_bytes()
    result = bitproof("pull", str(_zip(tmp_path / "a.zip", summary=told)))
    assert result.exit_code == 0
    assert result.stdout.endswith("no failure was recorded\n")


@pytest.mark.parametrize(
    "name",
    ["failures/../../out", "/failures/out", "failures//out", "failures/\x1b[31m", "failures/ "],
)
def test_nothing_is_written_outside_of_its_folder(
    bitproof: Bitproof, tmp_path: Path, name: str
) -> None:
    """Whatever the names in a zip are."""
    path = tmp_path / "hostile.zip"
    with zipfile.ZipFile(path, "w") as held:
        held.writestr(f"{name}.json", "{}")
    result = bitproof("pull", str(path))
    if not name.endswith(" "):
        refused(result, "hostile.zip holds nothing that a run of bitproof leaves")
    written = [file for _, _, files in os.walk(tmp_path) for file in files]
    assert sorted(set(written) - {".gitignore", " .json"}) == ["hostile.zip"]


def test_no_zip_fills_the_disk(
    bitproof: Bitproof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by its number of files nor by their sizes, nor by what it says of those."""
    path = _zip(tmp_path / "large.zip", failures__a="x" * 100, failures__b="y")
    for limit, said in (
        ("_FILES", "large.zip holds more than any run leaves: it is not taken apart"),
        ("_BYTES", "large.zip holds more than any run leaves: it is not taken apart"),
        ("_LARGEST", "'failures/a.json' in it is larger than anything that a run leaves"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(pull, limit, 1)
            refused(bitproof("pull", str(path)), said)
    (tmp_path / "no.zip").write_bytes(b"PK\x03\x04 and no more")
    refused(bitproof("pull", str(tmp_path / "no.zip")), "no.zip is no zip that can be read")


def test_what_a_record_says_does_not_draw_on_the_screen(bitproof: Bitproof, tmp_path: Path) -> None:
    """Control characters are shown as text."""
    record = {"format": 1, "kernel": "k", "spec": "s", "check": "agreement", "outcome": "failed"}
    record |= {"case": {}, "captured": None, "finding": [{"summary": "\x1b[2J"}], "fault": None}
    record |= {"lane": "interpreter", "versions": {}, "replay": ""}
    result = bitproof("pull", str(_zip(tmp_path / "a.zip", failures__a=json.dumps(record))))
    assert "\x1b" not in result.stdout
    assert "k agreement failed: \\x1b[2J" in result.stdout
