"""Readings of kernels' code, made by worker processes and kept on disk.

A reading is a function of the sources (the kernel's own and this harness's), of Triton's version and of
the target, and is kept under `.bitproof/lowering` by the digest of those.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO

import hypothesis
import msgspec
import triton

from bitproof.harness.errors import EnvironmentUnfit, UsageError
from bitproof.harness.lowering.findings import Reading, Refusal
from bitproof.harness.report import files as saving
from bitproof.harness.subjects.discovery import Found
from bitproof.harness.targets.versions import libraries

FOLDER = Path(".bitproof") / "lowering"
EXAMPLES = 64
# What has Triton assemble otherwise, or has the machine code read by another tool.
_TOOLS = (
    "TRITON_PTXAS_PATH",
    "TRITON_PTXAS_BLACKWELL_PATH",
    "TRITON_NVDISASM_PATH",
    "PTXAS_OPTIONS",
    "DISABLE_PTXAS_OPT",
)

Tell = Callable[[Reading], None]


def readings(
    wanted: Sequence[tuple[Found, str]],
    *,
    fault: str | None = None,
    tell: Tell = lambda _reading: None,
) -> list[Reading]:
    """A reading of each kernel for the target beside it, in that order, on all cores.

    `tell` hears of each when it is made. Raises UsageError for what does not exist, EnvironmentUnfit when a
    worker cannot start.
    """
    left = Counter(target for _, target in wanted)

    def made(place: int) -> Reading:
        found, target = wanted[place]
        one = reading(found, target, fault=fault)
        tell(one)
        with _lock:
            left[target] -= 1
            last = not left[target]
        if last:
            _dismiss(target)
        return one

    # Target by target, so that few of the large worker processes are alive at a time.
    order = sorted(range(len(wanted)), key=lambda place: wanted[place][1])
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        answers = dict(zip(order, pool.map(made, order), strict=True))
    return [answers[place] for place in range(len(wanted))]


def reading(found: Found, target: str, *, fault: str | None = None) -> Reading:
    """What one kernel's code for one target says, from disk where it was read before."""
    path = FOLDER / f"{found.spec.name}-{target}-{_digest(found, target, fault)}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=Reading)
    except (OSError, msgspec.MsgspecError):
        pass
    with _worker(target) as worker:
        made = worker.read(found, fault)
    saving.save(path, msgspec.json.format(msgspec.json.encode(made)))
    return made


def _digest(found: Found, target: str, fault: str | None) -> str:
    parts = [found.reference, found.spec.name, target, str(fault), str(EXAMPLES)]
    parts += [hypothesis.__version__, *libraries().values()]
    parts += [os.environ.get(name, "") for name in _TOOLS]
    digest = hashlib.sha256("\0".join(parts).encode())
    here = Path(__file__).resolve().parents[1]
    for folder in (here, here.parent / "oracles"):
        digest.update(_sources(folder))
    module = Path(str(found.module.__file__))
    digest.update(_sources(module.parent) if "." in found.module.__name__ else module.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _sources(folder: Path) -> bytes:
    """A digest of every Python file in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.digest()


_idle: dict[str, list[_Worker]] = {}
_lock = threading.Lock()


@contextmanager
def _worker(target: str) -> Iterator[_Worker]:
    """A worker that reads for nobody else meanwhile, idle afterwards."""
    with _lock:
        idle = _idle.setdefault(target, [])
        worker = idle.pop() if idle else _Worker(target=target)
    try:
        yield worker
    finally:
        with _lock:
            _idle.setdefault(target, []).append(worker)


def _dismiss(target: str) -> None:
    """End the idle workers of a target."""
    with _lock:
        idle = _idle.pop(target, [])
    for worker in idle:
        worker.end()
        worker.printed.close()


@atexit.register
def _end() -> None:
    for target in list(_idle):
        _dismiss(target)


@dataclass(kw_only=True)
class _Worker:
    """A process that reads for one target, started when first needed and again after a death."""

    target: str
    process: subprocess.Popen[str] | None = None
    printed: IO[bytes] = field(default_factory=tempfile.TemporaryFile)

    def read(self, found: Found, fault: str | None) -> Reading:
        """One reading; a compiler that takes the process with it has refused the kernel."""
        request = {
            "spec": found.reference,
            "kernel": found.spec.name,
            "fault": fault,
            "examples": EXAMPLES,
        }
        process = self._alive()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return self._died(found, process)
        answer = json.loads(line)
        if "error" in answer:
            raise UsageError(answer["error"])
        return msgspec.convert(answer, type=Reading)

    def _alive(self) -> subprocess.Popen[str]:
        if self.process is None or self.process.poll() is not None:
            self.end()
            self.printed.truncate(0)
            cache_folder = FOLDER / "triton" / triton.__version__ / self.target
            environment = {
                **os.environ,
                "TRITON_INTERPRET": "0",
                "TRITON_CACHE_DIR": str(cache_folder.resolve()),
                "PYTHONPATH": os.pathsep.join(part for part in sys.path if part),
            }
            environment.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bitproof.harness.lowering.worker", self.target],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.printed,
                text=True,
                env=environment,
            )
        return self.process

    def end(self) -> None:
        """Stop the process, if there is one."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _died(self, found: Found, process: subprocess.Popen[str]) -> Reading:
        code = process.wait()
        self.end()
        self.printed.seek(0)
        told = self.printed.read().decode(errors="replace")
        last = _telling(told.split("\n"))
        if code > 0 and "LLVM ERROR" not in told:
            raise EnvironmentUnfit(f"code for {self.target} cannot be read here: {last}")
        how = f"died of signal {-code}" if code < 0 else f"gave up with exit code {code}"
        sentence = f"the compiler {how}: {last}"
        refusal = Refusal(sentence=sentence, variants=1, first="")
        version = triton.__version__
        return Reading(
            kernel=found.spec.name, target=self.target, triton=version, refusals=(refusal,)
        )


def _telling(lines: Iterable[str]) -> str:
    """The line that says most of what a dying process printed: an error or an assertion, else the last."""
    kept = [line.strip() for line in lines if line.strip()]
    chosen = [line for line in kept if "LLVM ERROR" in line or "Assertion" in line]
    return (chosen or kept or ["it printed nothing"])[-1][:300]
