"""Cases in a process of their own: a crash or a hang costs one case, never the run.

The parent keeps one child alive and talks to it in lines of JSON; a child that dies or falls silent is
replaced. `Careful` starts out in this process, which is faster, and moves every later case to a child
once a launch has left this process's device unusable, as an illegal memory access on a GPU does.

`python -m bitproof.harness.search.isolation` is the child.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from bitproof.harness import case as cases
from bitproof.harness import checks, errors, lanes
from bitproof.harness.case import Case, Inputs, build
from bitproof.harness.errors import BitproofError, SpecError
from bitproof.harness.lanes.base import Lane
from bitproof.harness.outcomes import Finding, Findings, Outcome, raised
from bitproof.harness.report import files as saving
from bitproof.harness.report import records
from bitproof.harness.subjects.discovery import Found, find

TIMEOUT = 300.0
JOURNALS = Path(".bitproof") / "in-flight"


def described(case: Case) -> Inputs:
    """Inputs that carry a case without building its tensors, for reports on what ran elsewhere."""
    return Inputs(tensors={}, params=case.params(), launch=case.launch, case=case)


@dataclass(kw_only=True)
class Careful:
    """Judges cases in this process until its device breaks, then in a child.

    `journal` is a file that holds the case being judged, for whoever finds this process dead.
    """

    lane: Lane
    isolate: bool = False
    timeout: float = TIMEOUT
    journal: Path | None = None
    _child: Child | None = None

    def __call__(self, found: Found, check: str, case: Case) -> tuple[Inputs, Findings]:
        """The inputs (see `described` for those of a child) and the findings of one case."""
        if self.journal is not None:
            saving.save(self.journal, json.dumps(_request(found, check, case)).encode())
        if not self.isolate:
            inputs = build(case, self.lane.device)
            findings = checks.run(check, found.spec, inputs, self.lane)
            if findings.outcome is not Outcome.CRASHED or self.lane.usable():
                return inputs, findings
            self.isolate = True
            return described(case), findings
        if self._child is None:
            self._child = Child(timeout=self.timeout)
        return described(case), self._child.judge(_request(found, check, case))


@dataclass(kw_only=True)
class Child:
    """One child process, started when first needed and after every death."""

    timeout: float
    _process: subprocess.Popen[str] | None = None
    _answers: queue.Queue[str] = field(default_factory=queue.Queue)

    def judge(self, request: dict[str, Any]) -> Findings:
        """The child's findings; crashed when it died over the case, hung when it kept silent.

        Raises what checks raise: an error of the child's that no launch caused is no verdict.
        """
        process = self._alive()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = self._answers.get(timeout=self.timeout)
        except queue.Empty:
            self._end()
            return _lost(Outcome.HUNG, f"no answer within {self.timeout:g} s")
        except BrokenPipeError:
            answer = ""
        if not answer:
            code = process.wait()
            self._end()
            return _lost(Outcome.CRASHED, f"the process died with exit code {code}")
        read = json.loads(answer)
        if "error" in read:
            raise getattr(errors, read["error"])(read["text"])
        if read.pop("leaving"):
            self._end()  # or the next case would be sent to a child that no longer reads
        return msgspec.convert(read, type=Findings)

    def _alive(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._answers = queue.Queue()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bitproof.harness.search.isolation"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )
            atexit.register(self._process.kill)
            threading.Thread(
                target=_listen, args=(self._process, self._answers), daemon=True
            ).start()
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None


def _listen(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
    """Pass the child's lines on, and an empty one when it has ended."""
    assert process.stdout is not None
    try:
        for line in process.stdout:
            answers.put(line)
    except ValueError:
        pass  # the pipe was closed under us: the child was ended on purpose
    answers.put("")


def _request(found: Found, check: str, case: Case) -> dict[str, Any]:
    return {
        "spec": found.reference,
        "kernel": found.spec.name,
        "check": check,
        "runs": found.spec.reproducible.runs,
        "case": cases.encode(case),
    }


def _lost(outcome: Outcome, how: str) -> Findings:
    return Findings(outcome=outcome, findings=(Finding(summary=f"the launch {outcome}: {how}"),))


def bury(journal: Path, lane: str) -> Path | None:
    """The record of the case a dead process left in its journal, None where it left none."""
    try:
        request = json.loads(journal.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    found = find([request["spec"]], [request["kernel"]])[0]
    case = cases.decode(found.spec.case, request["case"])
    findings = _lost(Outcome.CRASHED, "the process that ran it died")
    return records.save(found, request["check"], described(case), findings, {"lane": lane})


def answer(request: dict[str, Any], lane: Lane) -> Findings:
    """Judge one requested case in this process."""
    found = find([request["spec"]], [request["kernel"]])[0].with_runs(request["runs"])
    case = cases.decode(found.spec.case, request["case"])
    return checks.run(request["check"], found.spec, build(case, lane.device), lane)


def main() -> None:
    """The child: answer requests until there are no more, or until the device is unusable."""
    speak = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(
        sys.stderr.fileno(), sys.stdout.fileno()
    )  # what a kernel prints must not look like an answer
    lanes.choose()
    lane = lanes.present()
    for line in sys.stdin:
        try:
            findings = answer(json.loads(line), lane)
        except Exception as error:
            print(json.dumps(_worded(error)), file=speak, flush=True)
            continue
        leaving = findings.outcome is Outcome.CRASHED and not lane.usable()
        told = {**msgspec.to_builtins(findings), "leaving": leaving}
        print(json.dumps(told, default=str), file=speak, flush=True)
        if leaving:
            os._exit(0)  # what a broken device leaves behind cannot be torn down


def _worded(error: Exception) -> dict[str, str]:
    """An error that no launch caused, for the parent to raise: ours as it is, others as the spec's."""
    if isinstance(error, BitproofError):
        return {"error": type(error).__name__, "text": str(error)}
    return {"error": SpecError.__name__, "text": f"judging a case raised {raised(error)}"}


if __name__ == "__main__":
    main()
