"""Files that a run leaves: written whole, read as what they are, or refused in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from bitproof.harness.errors import EnvironmentUnfit, UsageError
from bitproof.harness.report import files
from bitproof.harness.report.files import Format


@dataclass(frozen=True, kw_only=True)
class Note:
    """What is read here."""

    format: int
    text: str


FORM = Format(version=3, beside="text")


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Folders are made, nothing else is left, and other fields are passed over."""
    path = tmp_path / "deep" / "note.json"
    files.save(path, b'{"format": 3, "text": "yes", "more": 1}')
    assert files.read(path, Note, what="note", form=FORM) == Note(format=3, text="yes")
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is not a note: it is not valid JSON"),
        (b"\xff", "is not a note: it is not valid JSON"),
        (b'"\xff"', "is not a note: it is not valid JSON"),
        (b"[" * 100_000, "is not a note: it is not valid JSON"),
        (b"[3]", "is not a note written by bitproof"),
        (b'{"format": 3}', "is not a note written by bitproof"),
        (b'{"format": 4, "text": 1}', "has note format 4, this version reads 3: use the bitproof"),
        (b'{"format": 3, "text": 1}', "is a damaged note: Expected `str`, got `int`"),
    ],
)
def test_what_is_none_is_one_sentence(tmp_path: Path, text: bytes, said: str) -> None:
    """It begins with the file, or with the option that held the text."""
    path = tmp_path / "note.json"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=said) as raised:
        files.read(path, Note, what="note", form=FORM)
    assert str(raised.value).startswith(f"{path} ")
    assert "\n" not in str(raised.value)
    with pytest.raises(UsageError, match=f"^--note {said}"):
        files.parse(text, Note, source="--note", what="note", form=FORM)


def test_a_file_that_is_not_there_is_told_with_what_writes_it(tmp_path: Path) -> None:
    """A folder in its place too."""
    with pytest.raises(UsageError, match=r"none cannot be read: No such file or directory; write"):
        files.read(tmp_path / "none", Note, what="note", remedy="write it")
    with pytest.raises(UsageError, match=r" cannot be read: Is a directory$"):
        files.read(tmp_path, Note, what="note")


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    """The remedy is in it."""
    (tmp_path / "file").touch()
    with pytest.raises(
        EnvironmentUnfit, match=r"file/deep/note cannot be written \(Not a directory\)"
    ):
        files.save(tmp_path / "file" / "deep" / "note", b"")
