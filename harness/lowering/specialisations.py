"""Which specialisations a kernel's cases reach, and the code each compiles to, on a target at hand or not.

The launcher is called on CPU tensors as a lane would call it. Triton's own hooks say what it is about to
compile; of all that drawn cases reach, few are compiled, chosen so that every combination of types and
every value of a constant, an alignment and an option is among them: what a compiler does to numbers
depends on these.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from triton import knobs
from triton.runtime.autotuner import Autotuner

from bitproof.harness.case import Case, build
from bitproof.harness.compiling import null_driver
from bitproof.harness.errors import one_line
from bitproof.harness.lanes.arena import Arena
from bitproof.harness.lanes.base import LaunchFailed, call
from bitproof.harness.lowering.findings import Refusal
from bitproof.harness.search import falsify
from bitproof.harness.spec import KernelSpec
from bitproof.harness.targets.architectures import Target
from bitproof.harness.targets.refusals import sentence

TEXTS = ("ttir", "ptx", "llir", "amdgcn")
_CPU = torch.device("cpu")
_OPTIONS = ("num_warps", "num_stages", "num_ctas")

Fact = tuple[str, ...]


@dataclass(kw_only=True)
class Compiled:
    """One specialisation of one kernel function.

    `texts` holds its code by kind (see `TEXTS`), `cubin` is the file of NVIDIA's machine code; `written`
    maps the number of each pointer parameter to the names of the outputs in whose memory it was seen to
    point, none for memory of the launcher's own.
    """

    function: str
    variant: str
    texts: dict[str, str]
    cubin: Path | None
    written: dict[int, set[str]] = field(default_factory=dict)


@dataclass(kw_only=True)
class Reached:
    """Everything that a kernel's cases made Triton compile."""

    specialisations: set[str] = field(default_factory=set)
    compiled: list[Compiled] = field(default_factory=list)
    refusals: dict[str, Refusal] = field(default_factory=dict)
    launched: int = 0
    unlaunched: str = ""
    unseen: int = 0
    uncompiled: int = 0


def compile_reached(spec: KernelSpec, target: Target, *, examples: int) -> Reached:
    """Run `spec`'s launcher on up to `examples` cases, compiling for `target`."""
    watcher = _Watcher(spec=spec)
    null_driver.install(target, watcher.note_launch)
    with watcher.listen():
        for case in falsify.draw_cases(spec, examples):
            watcher.run(case)
        watcher.wanted, watcher.result.unseen = choose_covering(watcher.facts, spec.lowering.most)
        _forget_measurements()
        for case in dict.fromkeys(watcher.cases[variant] for variant in sorted(watcher.wanted)):
            while watcher.run(case):
                pass  # what was refused is left out next time, and what comes after it is reached
    watcher.result.uncompiled = len(
        watcher.wanted - {made.variant for made in watcher.result.compiled}
    )
    return watcher.result


def _forget_measurements() -> None:
    """Have autotuners try all their configurations again: they tried them when nothing was compiled."""
    for thing in gc.get_objects():
        if isinstance(thing, Autotuner):
            thing.cache.clear()


def choose_covering(facts: Mapping[str, frozenset[Fact]], most: int) -> tuple[set[str], int]:
    """(few of the specialisations that together show every fact of them all, facts left out).

    Greedily, the richest first; of each function, the first item of its facts, at most `most`.
    """
    chosen, unseen = set[str](), 0
    functions = sorted({fact[0] for each in facts.values() for fact in each})
    for function in functions:
        own = {name: each for name, each in sorted(facts.items()) if _function(each) == function}
        missing = set[Fact]().union(*own.values())
        for _ in range(most):
            if missing:
                richest = max(own, key=lambda name: len(own[name] & missing))
                chosen.add(richest)
                missing -= own[richest]
        unseen += len(missing)
    return chosen, unseen


def _function(facts: frozenset[Fact]) -> str:
    return next(iter(facts))[0]


@dataclass(kw_only=True)
class _Watcher:
    """First every specialisation is left uncompiled and described, then those in `wanted` are compiled."""

    spec: KernelSpec
    wanted: set[str] = field(default_factory=set)
    result: Reached = field(default_factory=Reached)
    facts: dict[str, frozenset[Fact]] = field(default_factory=dict)
    # The first case that reached a specialisation, and the case at hand.
    cases: dict[str, Case] = field(default_factory=dict)
    case: Case | None = None
    # The specialisation that the compiler is at work on, to know whose error an error is.
    current: str = ""
    by_source: dict[int, tuple[Any, Compiled]] = field(default_factory=dict)
    # (what was launched, number of the parameter, address) of the case at hand.
    pointers: list[tuple[Compiled, int, int]] = field(default_factory=list)

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Triton's hooks lead here."""
        knobs.runtime.jit_cache_hook = self.skips
        knobs.compilation.listener = self.note_compiled
        try:
            yield
        finally:
            knobs.runtime.jit_cache_hook = None
            knobs.compilation.listener = None

    def run(self, case: Case) -> bool:
        """One case; true where the compiler refused a specialisation, which it is not asked for again.

        Refusals of the launcher are its contract, other errors the compiler's or its own.
        """
        self.case, self.current = case, ""
        self.pointers.clear()
        before = os.fstat(2).st_size
        try:
            outputs, _ = call(self.spec, build(case, _CPU), Arena(device=_CPU, poison=0))
        except LaunchFailed as failure:
            error = failure.__cause__ or failure
            return not isinstance(error, self.spec.refuses) and self._note_refusal(error, before)
        self.result.launched += 1
        self._assign(outputs)
        return False

    def _note_refusal(self, error: BaseException, before: int) -> bool:
        if not self.current:
            # What does not fit the target is said when it is compiled, and again at every launch.
            if type(error).__name__ != "OutOfResources":
                self.result.unlaunched = f"{type(error).__name__}: {one_line(error)}"
            return False
        self.wanted.discard(self.current)
        text = sentence(error, before)
        earlier = self.result.refusals.get(text)
        self.result.refusals[text] = Refusal(
            sentence=text,
            variants=earlier.variants + 1 if earlier else 1,
            first=earlier.first if earlier else self.current,
        )
        return True

    def skips(self, *, fn: Any, compile: dict[str, Any], **_: Any) -> bool:
        """Triton's question before it compiles: true says not to."""
        function = fn.name.rsplit(".", 1)[-1]
        variant, facts = _describe(function, compile)
        self.result.specialisations.add(variant)
        self.facts.setdefault(variant, facts)
        if self.case is not None:
            self.cases.setdefault(variant, self.case)
        if variant not in self.wanted:
            return True
        self.current = variant
        return False

    def note_compiled(self, *, src: Any, metadata_group: dict[str, str], **_: Any) -> None:
        """Triton's word that it has compiled, or found in its cache, what it asked about."""
        files = {name.rsplit(".", 1)[-1]: Path(path) for name, path in metadata_group.items()}
        texts = {kind: files[kind].read_text(encoding="utf-8") for kind in TEXTS if kind in files}
        cubin = files.get("cubin")
        made = Compiled(function=src.name, variant=self.current, texts=texts, cubin=cubin)
        self.result.compiled.append(made)
        self.by_source[id(src)] = (src, made)

    def note_launch(self, source: Any, arguments: tuple[Any, ...]) -> None:
        """A launch into nothing: remember where its pointers point."""
        self.current = ""
        found = self.by_source.get(id(source))
        if found is None:
            return
        made = found[1]
        for number, argument in _number_arguments(source, arguments, _parameter_count(made.texts)):
            address = _storage(argument)
            if address is not None:
                self.pointers.append((made, number, address))

    def _assign(self, outputs: dict[str, Tensor]) -> None:
        names: dict[int, set[str]] = {}
        for name, output in outputs.items():
            names.setdefault(output.untyped_storage().data_ptr(), set()).add(name)
        for made, number, address in self.pointers:
            made.written.setdefault(number, set()).update(names.get(address, ()))


def _describe(function: str, compile: dict[str, Any]) -> tuple[str, frozenset[Fact]]:
    """A specialisation in words, and the facts that make it what it is."""
    signature: dict[str, Any] = compile["signature"]
    names = list(signature)
    constants = {_path(names, path): str(value) for path, value in compile["constants"].items()}
    aligned = {_path(names, path) for path, value in compile["configs"][0].items() if value}
    options = {name: str(compile[name]) for name in _OPTIONS if compile.get(name) is not None}
    types = [f"{name} {kind}" for name, kind in signature.items() if kind != "constexpr"]
    # Types of floats matter together; what becomes of one integer hardly depends on another.
    integer = re.compile(r"[iu]\d+")
    facts: set[Fact] = {("types", *(t for t in types if not integer.fullmatch(t.split()[1])))}
    facts |= {("integer", t) for t in types if integer.fullmatch(t.split()[1])}
    facts |= {("constant", *item) for item in constants.items()}
    facts |= {("aligned", name, str(name in aligned)) for name in names}
    facts |= {("option", *item) for item in options.items()}
    parts = [
        *(f"{part}{' aligned' if part.split()[0] in aligned else ''}" for part in types),
        *(f"{name}={value}" for name, value in (constants | options).items()),
    ]
    variant = f"{function}({', '.join(parts)})"
    return variant, frozenset((function, *fact) for fact in facts)


def _path(names: list[str], path: Any) -> str:
    steps = path if isinstance(path, tuple) else (path,)
    first = names[steps[0]] if isinstance(steps[0], int) else str(steps[0])
    return ".".join([first, *(str(step) for step in steps[1:])])


def _parameter_count(texts: dict[str, str]) -> int:
    """Parameters of the compiled function, the two that Triton adds for scratch memory included."""
    if "ptx" in texts:
        start = texts["ptx"].index(".entry")
        return texts["ptx"][start : texts["ptx"].index("\n)", start)].count(".param")
    header = re.search(r"^define amdgpu_kernel .*$", texts.get("llir", ""), re.MULTILINE)
    return len(re.findall(r"%\d+(?=[,)])", header[0])) if header else 0


def _number_arguments(
    source: Any, arguments: tuple[Any, ...], count: int
) -> Iterator[tuple[int, Any]]:
    """(number of the compiled parameter, argument) for the arguments of which it can be told.

    Constants have no parameter. A tensor descriptor becomes several, how many depends on target and
    version: what comes before the first is counted from the front, what comes after the last from the
    back, and nothing is said of what lies between.
    """
    kinds = [kind for kind in source.signature.values() if kind != "constexpr"]
    kept = [
        argument
        for argument, kind in zip(arguments, source.signature.values(), strict=True)
        if kind != "constexpr"
    ]
    simple = [isinstance(kind, str) and not kind.startswith("tensordesc") for kind in kinds]
    front = simple.index(False) if False in simple else len(kinds)
    yield from enumerate(kept[:front])
    back = simple[::-1].index(False) if False in simple else 0
    scratch = 2
    for i in range(1, back + 1):
        yield count - scratch - i, kept[-i]


def _storage(argument: Any) -> int | None:
    tensor = getattr(argument, "base", argument)
    return tensor.untyped_storage().data_ptr() if isinstance(tensor, Tensor) else None
