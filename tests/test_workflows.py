"""This project's workflows, and those that others copy, are valid and safe by the word of two linters."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bitproof.harness.commands.cli import main
from bitproof.options import OPTIONS

CHECKOUT = Path(__file__).resolve().parent.parent
OURS = sorted((CHECKOUT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((CHECKOUT / "docs" / "workflows").glob("*.yml"))
LINTERS = (
    ("check-jsonschema", "--builtin-schema", "vendor.github-workflows"),
    ("zizmor", "--offline", "--no-progress"),
)


def _lint(linter: tuple[str, ...], *files: Path) -> subprocess.CompletedProcess[str]:
    name, *options = linter
    command = [str(Path(sys.executable).with_name(name)), *options, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_there_are_two_workflows_and_the_same_two_as_templates() -> None:
    """One without a GPU for pull requests, one with GPUs for nights."""
    assert [path.name for path in OURS] == ["ci.yml", "nightly.yml"]
    assert [path.name for path in TEMPLATES] == ["nights.yml", "pull-requests.yml"]


@pytest.mark.parametrize("linter", LINTERS, ids=[linter[0] for linter in LINTERS])
def test_linters_find_nothing(linter: tuple[str, ...], tmp_path: Path) -> None:
    """And they would: an unknown key, a title handed to a shell, an action that may change."""
    ended = _lint(linter, *OURS, *TEMPLATES)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    spoilt = tmp_path / "spoilt.yml"
    spoilt.write_text(SPOILT)
    assert _lint(linter, spoilt).returncode != 0


SPOILT = """
on: pull_request
jobs:
  one:
    runs-on: [self-hosted]
    surprise: true
    steps:
      - uses: actions/checkout@v4
      - run: echo ${{ github.event.pull_request.title }}
"""


@pytest.mark.parametrize("path", OURS + TEMPLATES, ids=lambda path: path.name)
def test_workflows_use_commands_and_options_that_exist(path: Path) -> None:
    """So that a renamed option breaks this test before it breaks a night."""
    text = path.read_text().replace("\\\n", " ")
    for line in re.findall(r"^.*bitproof report.*$", text, re.MULTILINE):
        command = shlex.split(line.split("bitproof", 1)[1].partition(' "${before')[0])[0]
        listed = CliRunner().invoke(main, [command, "--help"]).output
        for option in re.findall(r"(?<= )--[a-z-]+", line):
            assert option in listed, f"{command} {option}"
    for line in re.findall(r"^.*-m pytest.*$", text, re.MULTILINE):
        own = set(re.findall(r"(?<= )--([a-z-]+)", line)) - {"pyargs", "hypothesis-profile"}
        assert own <= set(OPTIONS)
