"""`bitproof pull`: what a run on another machine left, here; and what failed there.

A zip may come from anybody: only files of known kinds are taken out of it, by names that stay in the folder.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path, PurePosixPath

import click
from hypothesis.database import GitHubArtifactDatabase
from hypothesis.errors import HypothesisWarning

from bitproof.harness.commands import report
from bitproof.harness.errors import BitproofError, EnvironmentUnfit, UsageError
from bitproof.harness.report import files, records, summary

FOLDER = files.FOLDER / "pulled"
_REPOSITORY = re.compile(r"(?:https://github\.com/)?([\w.-]+)/([\w.-]+)", re.ASCII)
_SAFE = re.compile(r"[\w.,=+@ -]+", re.ASCII)
# What a run leaves that somebody else wants, and how much of it at most: a zip can hold more than it seems.
_WANTED = ("summary.json", "failures/", "examples/", "sweeps/", "mutants/", "attribution/")
_FILES = 100_000
_BYTES = 1 << 30
_LARGEST = 1 << 26


def run(source: str, *, artifact: str, to: Path | None) -> int:
    """Take the files out, print the verdict and each record with its replay; 1 where something failed."""
    path = Path(source)
    if path.is_file() or path.suffix == ".zip":
        name = path.stem
    else:
        path, name = _fetch(source, artifact), artifact
    folder = to or FOLDER / name
    taken = _extract(path, folder)
    click.echo(f"{taken} files in {folder}")
    return _tell(folder)


def _fetch(source: str, artifact: str) -> Path:
    """The newest artifact of that name of a repository, as Hypothesis's own database fetches it."""
    found = _REPOSITORY.fullmatch(source)
    if not found:
        raise UsageError(
            f"{source} is neither a zip file that is there nor OWNER/REPOSITORY on GitHub: download the "
            "artifact, and name its zip"
        )
    folder = FOLDER / "zips" / found[1] / found[2] / artifact
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", HypothesisWarning)
        # Fetches when it is first asked for anything.
        database = GitHubArtifactDatabase(
            found[1], found[2], artifact, cache_timeout=timedelta(0), path=folder
        )
        list(database.fetch(b""))
    fetched = sorted(folder.glob("*.zip"))
    if not fetched:
        why = " ".join(dict.fromkeys(" ".join(str(one.message).split()) for one in said))
        raise EnvironmentUnfit(f"no artifact {artifact!r} of {source} can be fetched: {why}")
    return fetched[-1]


def _extract(path: Path, folder: Path) -> int:
    """Write the files that a run leaves into `folder`; how many there were."""
    try:
        with zipfile.ZipFile(path) as held:
            wanted = [(one, place) for one in held.infolist() if (place := _place(one.filename))]
            if len(wanted) > _FILES or sum(one.file_size for one, _ in wanted) > _BYTES:
                raise UsageError(f"{path} holds more than any run leaves: it is not taken apart")
            for one, place in wanted:
                files.save(folder / place, _read(held, one))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError) as error:
        raise UsageError(f"{path} is no zip that can be read: {error}") from error
    if not wanted:
        raise UsageError(f"{path} holds nothing that a run of bitproof leaves")
    return len(wanted)


def _read(held: zipfile.ZipFile, one: zipfile.ZipInfo) -> bytes:
    """At most as much as a file of a run has, whatever the zip says of its size."""
    with held.open(one) as stream:
        content = stream.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise UsageError(f"{one.filename!r:.80} in it is larger than anything that a run leaves")
    return content


def _place(name: str) -> PurePosixPath | None:
    """Where a file goes, below the folder; None for a folder, and for what no run leaves."""
    parts = name.removeprefix(f"{files.FOLDER}/").split("/")
    inside = "/".join(parts)
    if not inside.startswith(_WANTED) or name.endswith("/"):
        return None
    safe = all(_SAFE.fullmatch(part) and part.strip(". ") for part in parts)
    return PurePosixPath(*parts) if safe else None


def _tell(folder: Path) -> int:
    """The verdict of each summary, and each record with the command that replays it here."""
    status = 0
    if (folder / "summary.json").is_file():
        told = summary.read(folder / "summary.json")
        click.echo(report.describe_verdict(told.entries))
        click.echo(f"lane {told.lane}  profile {told.profile}  {told.seconds} s")
    for line in _describe_records(folder / "failures"):
        click.echo(line)
        status = 1
    if not status:
        click.echo("no failure was recorded")
    return status


def _describe_records(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.json")):
        try:
            record = records.load(path)
        except BitproofError as error:
            yield f"bitproof: {error}"
            continue
        found = record.finding[0].get("summary", "") if record.finding else ""
        told = " ".join(f"{record.kernel} {record.check} {record.outcome}: {found}".split())
        yield told if told.isprintable() else repr(told)
        yield f"  {records.replay_command(path, record.spec)}"
