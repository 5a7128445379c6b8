"""Whether any target compiles what a lane launched without a compiler, asked of worker processes.

The interpreter takes more than the language: a variable that changes its type, `break`, `try`. Answers are
kept in memory and under `.bitproof/compiled`, by a digest of the kernel's source, what it was specialised
on, and the versions. What is asked is Triton's frontend, which knows the language; what an assembler refuses
later is for `lowering` to say.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bitproof.harness.compiling.launch import KernelLaunch
from bitproof.harness.errors import EnvironmentUnfit
from bitproof.harness.processes.child import STARTING, Child, Died, Lost
from bitproof.harness.processes.serve import stage
from bitproof.harness.targets.versions import libraries

FOLDER = Path(".bitproof") / "compiled"
# The first is asked; the others where it refuses, since what one of them takes is not refused. They are far
# apart: another vendor's, one without fp8, one whose instructions no earlier one has.
TARGETS = ("sm_90", "gfx942", "sm_80", "sm_100")
# Specialisations of one kernel function that are compiled for one spec; cases reach many that compile alike.
MOST = 4
# Seconds for one kernel: half a second is usual.
LIMIT = 60.0

# Why a specialisation compiles nowhere, "" where it does somewhere or nothing is known, by its digest.
_answers: dict[str, str] = {}
_met: collections.Counter[tuple[str, str]] = collections.Counter()


def find_refusal(spec: str, launches: Iterable[KernelLaunch]) -> str:
    """Why no target compiles one of `launches`, in a sentence; "" where each compiles as far as is known.

    Of each kernel function the first few specialisations that `spec` met in this process are compiled. Raises
    EnvironmentUnfit where no worker can start.
    """
    # Triton is imported by the lane that was chosen, never before.
    from bitproof.harness.compiling.description import Undescribable, describe

    for launch in launches:
        try:
            described = describe(launch)
        except Undescribable:
            continue
        refusal = _answers.get(described.digest)
        if refusal is None:
            # What was once answered holds in every process, however many it has met.
            refusal = _read_answer(described.digest)
            if refusal is None:
                if _met[spec, described.function] >= MOST:
                    continue
                _met[spec, described.function] += 1
                refusal = _answer(described.digest, json.dumps(described.request))
            _answers[described.digest] = refusal
        if refusal:
            return f"no target compiles {launch.function.__name__}: {refusal}"
    return ""


@dataclass(frozen=True, kw_only=True)
class Code:
    """What the first target makes of a launch: a digest of its simplified code, or why it refuses.

    `launch` is a digest of the launch itself, as far as it decides the code.
    """

    launch: str
    digest: str = ""
    refused: str = ""


def read_code(launch: KernelLaunch) -> Code | None:
    """The code of a launch for the first target; None where nothing can be said of it.

    Two launches of equal code compute the same on every target, unless their source asks which one it is.
    Raises EnvironmentUnfit where no worker can start.
    """
    from bitproof.harness.compiling.description import Undescribable, describe

    try:
        described = describe(launch)
    except Undescribable:
        return None
    path = FOLDER / f"{described.digest}-{versions()}-code.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(path.read_bytes())
        return Code(launch=described.digest, digest=known["digest"], refused=known["refused"])
    with stage("compiling"):
        told = ask(TARGETS[0], json.dumps(described.request))
    if told is None or told.get("unknown"):
        return None
    code = Code(launch=described.digest, digest=told.get("code", ""), refused=told["refused"])
    if not code.refused:
        _answers[described.digest] = ""
    save(path, json.dumps({"digest": code.digest, "refused": code.refused}))
    return code


def _locate_answer(digest: str) -> Path:
    return FOLDER / f"{digest}-{versions()}.json"


def _read_answer(digest: str) -> str | None:
    """What some process was answered; None where none was."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(_locate_answer(digest).read_bytes())["refused"])
    return None


def _answer(digest: str, request: str) -> str:
    with stage("compiling"):  # the patience with a launch is not for a compiler
        refused, known = _ask_targets(request)
    if known:
        save(_locate_answer(digest), json.dumps({"refused": refused}))
    return refused


def _ask_targets(request: str) -> tuple[str, bool]:
    """(why the first target refuses where all do, else ""; whether that is the last word)."""
    first = ""
    for name in TARGETS:
        told = ask(name, request)
        if told is None or told["unknown"]:
            return "", False
        if not told["refused"]:
            return "", True
        first = first or told["refused"]
    return first, True


def ask(name: str, request: str) -> dict[str, str] | None:
    """What the worker of a target answers, see `worker.answer`; None where it gave no answer in time."""
    try:
        answer: dict[str, str] = _worker(name).ask(json.loads(request), LIMIT)
        return answer
    except Lost as lost:
        if lost.stage == STARTING:
            raise EnvironmentUnfit(
                f"kernels cannot be compiled for {name} here: the process that compiles {lost}: "
                f"{lost.telling}"
            ) from lost
        if isinstance(lost, Died):
            return {"refused": f"the compiler {lost}: {lost.telling}", "unknown": ""}
        return None


@cache
def _worker(name: str) -> Child:
    cache_folder = FOLDER / "triton" / name
    return Child(
        module="bitproof.harness.compiling.worker",
        arguments=(name,),
        environment={
            "TRITON_INTERPRET": "0",
            "TRITON_CACHE_DIR": str(cache_folder.resolve()),
            "TRITON_DEFAULT_FP_FUSION": os.environ.get("TRITON_DEFAULT_FP_FUSION", "1"),
        },
    )


@cache
def versions() -> str:
    """A digest of what decides an answer beside the launch: libraries, and the code that asks."""
    digest = hashlib.sha256(json.dumps([libraries(), TARGETS]).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def save(path: Path, text: str) -> None:
    """Write whole or not at all; an answer that cannot be kept is asked for again."""
    partial = path.with_suffix(f".{os.getpid()}.partial")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
