"""What is made of evidence, and what can be done with a verdict that was saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bitproof.harness.acceptance import page, remote
from bitproof.harness.acceptance.trials import TRIALS, Evidence
from bitproof.harness.acceptance.verdict import Verdict
from bitproof.harness.commands import accept
from bitproof.harness.outcomes import Outcome
from tests.harness.acceptance.accepting import HERE, Local
from tests.harness.command_line import Bitproof, refused

CANDIDATE, REFERENCE = (HERE / f"normalise_{name}.py" for name in ("candidates", "reference"))


def _verdict(**outcomes: Outcome) -> Verdict:
    named = dict.fromkeys(TRIALS, Outcome.PASSED)
    named |= {name.replace("_", " "): outcome for name, outcome in outcomes.items()}
    evidence = (Evidence(trial=name, outcome=one, sentence="") for name, one in named.items())
    return Verdict(evidence=tuple(evidence), receipt={})


def test_a_verdict_is_that_of_the_worst_trial() -> None:
    """One defect rejects; whatever was not shown leaves it open; refusing layouts in words is no fault."""
    assert _verdict().word == "accepted"
    assert _verdict(layouts=Outcome.REFUSED).word == "accepted"
    for defect in (Outcome.FAILED, Outcome.CRASHED, Outcome.HUNG):
        assert _verdict(memory=defect, agreement=Outcome.NOT_DEMONSTRATED).word == "rejected"
    assert _verdict(agreement=Outcome.NOT_DEMONSTRATED).word == "not demonstrated"
    assert Verdict(evidence=_verdict().evidence[:-1], receipt={}).word == "not demonstrated"
    assert [one.status for one in (_verdict(), _verdict(memory=Outcome.FAILED))] == [0, 1]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates run in this process."""

    def start(candidate: str, problem: Any) -> remote.Remote:
        process = Local(candidate)
        made = remote.Remote(candidate, problem, process)
        process.setup = str(made.setup)
        return made

    monkeypatch.setattr(accept, "Remote", start)


@pytest.mark.usefixtures("here")
def test_a_rejection_is_one_page_with_a_replay(bitproof: Bitproof) -> None:
    """The case, what is wrong there, what was judged; the replay says the same, and exits with 1."""
    result = bitproof(
        *("accept", f"{CANDIDATE}:Half", "--reference", str(REFERENCE), "--minutes", "0.4")
    )
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == f"{CANDIDATE}:Half against {REFERENCE}: rejected"
    (replay,) = (line.split()[-1] for line in lines if line.startswith("  replay "))
    told = json.loads(Path(replay).read_text())
    assert told["verdict"] == "rejected"
    assert told["receipt"]["fixed"] == {"n0": "an argument of the model is it"}
    assert len(told["receipt"]["candidate_sha256"]) == 64
    assert told["evidence"][-1]["trial"] == "agreement"
    again = bitproof("accept", "--replay", replay)
    assert again.exit_code == 1
    assert "failed" in again.stdout


@pytest.mark.usefixtures("here")
def test_a_verdict_is_a_page_that_needs_nothing_else(bitproof: Bitproof, tmp_path: Path) -> None:
    """The verdict, each trial, what is wrong, the receipt; names of files are escaped."""
    candidate = tmp_path / "<b>.py"
    candidate.write_text(CANDIDATE.read_text())
    page = tmp_path / "page.html"
    asked = (f"{candidate}:Half", "--reference", str(REFERENCE), "--minutes", "0.4")
    result = bitproof("accept", *asked, "--html", str(page))
    assert result.exit_code == 1
    text = page.read_text()
    assert '<h1 class="rejected">rejected</h1>' in text
    assert "&lt;b&gt;.py:Half" in text
    assert "<b>" not in text
    assert "agreement: failed</h2>" in text
    assert "bitproof accept --replay" in text
    assert "candidate sha256" in text
    assert "http" not in text.replace("http-equiv", "")


def test_a_page_of_an_accepted_candidate_shows_error_by_magnitude() -> None:
    """A row for each input that was scaled; trials that were not tried are named."""
    ratios = {"x": {"0": 0.5, "12": 0.25}}
    scaled = Evidence(
        trial="scalings", outcome=Outcome.PASSED, sentence="<inside>", facts={"ratios": ratios}
    )
    receipt = {"candidate": "a.py", "reference": "b.py", "sizes": {"n": 3}}
    text = page.render(Verdict(evidence=(scaled,), receipt=receipt), None)
    assert '<td class="n">0.5</td>' in text
    assert "&lt;inside&gt;" in text
    assert text.count("not tried") == len(TRIALS) - 1


@pytest.mark.usefixtures("here")
def test_a_verdict_is_printed_as_json(bitproof: Bitproof) -> None:
    """The same as is saved."""
    result = bitproof(
        *("accept", f"{CANDIDATE}:Fallback", "--reference", str(REFERENCE), "--minutes", "0.4"),
        "--json",
    )
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["verdict"] == "rejected"
    assert told["evidence"][0]["facts"]["torch_operations"]["rsqrt"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing.py",), "accept takes a CANDIDATE and --reference REF"),
        (("nothing.py", "--reference", "none.py"), "none.py: no such file"),
        (("x.py", "--reference", f"{REFERENCE}:other"), "defines no function 'other'"),
        (("x.py", "--reference", str(HERE / "accepting.py")), "it defines no class Model"),
        (("x.py", "--reference", f"{HERE / 'accepting.py'}:tried"), "defines no get_inputs()"),
        (("x.py", "--replay", "y.json"), "give nothing else"),
        (("--replay", "y.json"), "no verdict can be read from it"),
    ],
)
def test_what_cannot_be_judged_is_said(
    bitproof: Bitproof, arguments: tuple[str, ...], said: str
) -> None:
    """One sentence, status 2."""
    refused(bitproof("accept", *arguments), said)


@pytest.mark.slow
def test_a_candidate_runs_in_a_process_of_its_own(bitproof: Bitproof) -> None:
    """As a user runs it: a right candidate is accepted."""
    result = bitproof(*("accept", str(CANDIDATE), "--reference", str(REFERENCE), "--minutes", "3"))
    assert result.exit_code == 0, result.stdout
    assert result.stdout.splitlines()[0].endswith(": accepted")
