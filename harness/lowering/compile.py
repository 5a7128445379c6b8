"""Readings of kernels' code, made by worker processes and kept on disk.

A reading is a function of the sources (the kernel's own and this harness's), of Triton's version and of
the target, and is kept under `.bitproof/lowering` by the digest of those.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import hypothesis
import msgspec
import triton

from bitproof.harness.errors import EnvironmentUnfit, UsageError
from bitproof.harness.lowering.findings import Reading, Refusal
from bitproof.harness.processes.child import STARTING, Child, Hung, Lost
from bitproof.harness.report import files
from bitproof.harness.subjects.discovery import FoundSpec
from bitproof.harness.targets.versions import libraries

FOLDER = Path(".bitproof") / "lowering"
EXAMPLES = 64
# Seconds for one reading: all built-in kernels for three targets take less together, on two cores.
LIMIT = 600.0
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
    wanted: Sequence[tuple[FoundSpec, str]], *, tell: Tell = lambda _reading: None
) -> list[Reading]:
    """A reading of each kernel for the target beside it, in that order, on all cores.

    `tell` hears of each when it is made. Raises UsageError for what does not exist, EnvironmentUnfit when a
    worker cannot start.
    """
    left = Counter(target for _, target in wanted)

    def make(place: int) -> Reading:
        found, target = wanted[place]
        one = read_one(found, target)
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
        try:
            answers = dict(zip(order, pool.map(make, order), strict=True))
        except BaseException:  # a Ctrl-C too: what is being read would be waited for
            pool.shutdown(wait=False, cancel_futures=True)
            _interrupt()
            raise
    return [answers[place] for place in range(len(wanted))]


def read_one(found: FoundSpec, target: str) -> Reading:
    """What one kernel's code for one target says, from disk where it was read before."""
    path = FOLDER / f"{found.spec.name}-{target}-{_digest(found, target)}.json"
    try:
        return files.read(path, Reading, what="reading")
    except UsageError:
        pass
    with _worker(target) as worker:
        made = worker.read(found)
    if not made.hung:  # which may be this machine's doing, and not last
        files.save(path, msgspec.json.format(msgspec.json.encode(made)))
    return made


def _digest(found: FoundSpec, target: str) -> str:
    parts = [found.reference, found.spec.name, target, str(found.fault), str(EXAMPLES)]
    parts += [hypothesis.__version__, *libraries().values()]
    parts += [os.environ.get(name, "") for name in _TOOLS]
    digest = hashlib.sha256("\0".join(parts).encode())
    here = Path(__file__).resolve().parents[1]
    for folder in (here, here.parent / "oracles"):
        digest.update(_sources(folder))
    module = Path(str(found.module.__file__))
    in_package = "." in found.module.__name__
    digest.update(_sources(_package(module.resolve())) if in_package else module.read_bytes())
    return digest.hexdigest()[:16]


def _package(module: Path) -> Path:
    """The outermost package that a module lies in: kernels use those of other folders."""
    folder = module.parent
    while (folder.parent / "__init__.py").exists():
        folder = folder.parent
    return folder


@cache
def _sources(folder: Path) -> bytes:
    """A digest of every Python file in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.digest()


_idle: dict[str, list[_Worker]] = {}
_busy: list[_Worker] = []
_lock = threading.Lock()


@contextmanager
def _worker(target: str) -> Iterator[_Worker]:
    """A worker that reads for nobody else meanwhile, idle afterwards."""
    with _lock:
        idle = _idle.setdefault(target, [])
        worker = idle.pop() if idle else _Worker(target)
        _busy.append(worker)
    try:
        yield worker
    finally:
        with _lock:
            _busy.remove(worker)
            _idle.setdefault(target, []).append(worker)


def _dismiss(target: str) -> None:
    """End the idle workers of a target."""
    with _lock:
        idle = _idle.pop(target, [])
    for worker in idle:
        worker.end()


def _interrupt() -> None:
    """Kill the workers that read, whoever waits for them."""
    with _lock:
        busy = tuple(_busy)
    for worker in busy:
        worker.kill()


class _Worker:
    """A process that reads for one target, started when first needed and again after a death."""

    def __init__(self, target: str) -> None:
        cache_folder = FOLDER / "triton" / triton.__version__ / target
        self.target = target
        self._child = Child(
            module="bitproof.harness.lowering.worker",
            arguments=(target,),
            environment={
                "TRITON_INTERPRET": "0",
                "TRITON_CACHE_DIR": str(cache_folder.resolve()),
                "TRITON_DEFAULT_FP_FUSION": os.environ.get("TRITON_DEFAULT_FP_FUSION", "1"),
            },
        )

    def read(self, found: FoundSpec) -> Reading:
        """One reading; a compiler that takes the process with it has refused the kernel."""
        request = {
            "spec": found.reference,
            "kernel": found.spec.name,
            "fault": found.fault,
            "examples": EXAMPLES,
        }
        try:
            return msgspec.convert(self._child.ask(request, LIMIT), type=Reading)
        except Lost as lost:
            return self._report_loss(found, lost)

    def kill(self) -> None:
        """Have whoever waits for a reading hear of a death."""
        self._child.kill()

    def end(self) -> None:
        """Stop the process, if there is one."""
        self._child.close()

    def _report_loss(self, found: FoundSpec, lost: Lost) -> Reading:
        if lost.stage == STARTING:
            raise EnvironmentUnfit(
                f"code for {self.target} cannot be read here: the process that reads it {lost}: "
                f"{lost.telling}"
            ) from lost
        reading = Reading(kernel=found.spec.name, target=self.target, triton=triton.__version__)
        if isinstance(lost, Hung):
            hung = f"reading {found.spec.name} for {self.target} took longer than {LIMIT:g} s and was ended"
            return replace(reading, hung=hung)
        sentence = f"the compiler {lost}: {lost.telling}"
        return replace(reading, refusals=(Refusal(sentence=sentence, variants=1, first=""),))
