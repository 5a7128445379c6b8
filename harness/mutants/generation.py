"""Makes mutants: every operator at every place of the kernel functions that a launcher reaches; samples."""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bitproof.harness.mutants.edits import Edit, Source, diff
from bitproof.harness.mutants.operators import OPERATORS
from bitproof.harness.mutants.places import Place
from bitproof.harness.mutants.reached import find_reached
from bitproof.harness.subjects.discovery import FoundSpec

SAMPLE = 60


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One generated fault: the file and line, the function or constant, and the source with the edit.

    name       a digest of the module and the edited text: the same for the same fault, whatever made it
    operators  the operators that make it, in the order of their table
    """

    name: str
    operators: tuple[str, ...]
    module: str
    file: str
    line: int
    within: str
    edit: Edit
    source: Source

    @property
    def operator(self) -> str:
        """The first of its operators."""
        return self.operators[0]

    @property
    def after(self) -> str:
        """The module's text with the edit."""
        return self.source.apply(self.edit)

    @property
    def diff(self) -> str:
        """The change as a unified diff."""
        return diff(self.source.text, self.after, self.file)

    @property
    def place(self) -> str:
        """As people read it: "groups.py:21 (tile_of_groups)"."""
        return f"{self.file}:{self.line} ({self.within})"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A kernel with all its mutants, in the order of their files, and what has no source to edit."""

    found: FoundSpec
    mutants: tuple[Mutant, ...]
    missing: tuple[str, ...] = ()


def generate(found: FoundSpec) -> Subject:
    """Every mutant of the kernel functions that the launcher of `found` reaches, duplicates merged."""
    reached, missing = find_reached(found.spec)
    made: dict[str, Mutant] = {}
    for one in reached:
        for name in sorted(one.names):
            made |= _of_definition(one.module.__name__, Path(str(one.module.__file__)), name)
    mutants = sorted(made.values(), key=lambda mutant: (mutant.module, mutant.edit))
    return Subject(found=found, mutants=tuple(mutants), missing=tuple(missing))


@functools.cache
def _source(path: Path) -> Source:
    return Source(text=path.read_text(encoding="utf-8"))


@functools.cache
def _of_definition(module: str, path: Path, within: str) -> dict[str, Mutant]:
    """The mutants of one function or constant, by name."""
    source = _source(path)
    made: dict[str, Mutant] = {}
    for definition in source.tree.body:
        if _defined(definition) != within:
            continue
        start, _ = source.span(definition)
        unchanged = ast.dump(ast.parse(source.of(definition)).body[0])
        part = source.of(definition).encode()
        for operator, edit in make_edits(source, definition):
            first, last = edit.start - start, edit.stop - start
            text = (part[:first] + edit.new.encode() + part[last:]).decode()
            try:
                changed = ast.dump(ast.parse(text).body[0])
            except SyntaxError:
                continue
            if changed == unchanged:
                continue
            name = hashlib.sha256(f"{module}\0{changed}".encode()).hexdigest()[:12]
            if name not in made:
                made[name] = Mutant(
                    name=name,
                    operators=(operator,),
                    module=module,
                    file=_shown(module, path),
                    line=source.line(edit),
                    within=within,
                    edit=edit,
                    source=source,
                )
            elif operator not in made[name].operators:
                made[name] = _also(made[name], operator)
    return made


def _also(mutant: Mutant, operator: str) -> Mutant:
    return dataclasses.replace(mutant, operators=(*mutant.operators, operator))


def _shown(module: str, path: Path) -> str:
    """A file as reports name it: from its top package on, where its module's name tells that."""
    below = f"{module.replace('.', '/')}.py"
    return below if path.as_posix().endswith(f"/{below.rpartition('/')[2]}") else path.name


def make_edits(source: Source, definition: ast.stmt) -> Iterator[tuple[str, Edit]]:
    """(operator, edit) in the order of the text, then of the operators."""
    parents = {child: node for node in ast.walk(definition) for child in ast.iter_child_nodes(node)}
    for node in _body(definition):
        place = Place(node=node, source=source, parents=parents)
        operand = isinstance(parents[node], _OPERATIONS)
        for operator in OPERATORS:
            for new in operator.find(place):
                yield operator.name, source.replace(node, new or "pass", operand=operand)


# What an expression with an operator needs brackets in.
_OPERATIONS = (
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.BoolOp,
    ast.IfExp,
    ast.Attribute,
    ast.Subscript,
)


def _defined(node: ast.stmt) -> str | None:
    if isinstance(node, ast.FunctionDef):
        return node.name
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        return target.id if isinstance(target, ast.Name) else None
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    return None


def _body(definition: ast.stmt) -> Iterator[ast.AST]:
    """The nodes that run: no decorators, parameters, annotations, docstrings or assertions."""
    roots: list[ast.AST]
    if isinstance(definition, ast.FunctionDef):
        roots = list(definition.body)
    else:
        assert isinstance(definition, (ast.Assign, ast.AnnAssign))
        roots = [definition.value] if definition.value is not None else []
    while roots:
        node = roots.pop(0)
        if isinstance(node, ast.Expr) and _is_told(node.value):
            continue
        if isinstance(node, ast.Assert):
            continue
        yield node
        children = [
            child
            for field, value in ast.iter_fields(node)
            if field not in ("annotation", "ctx")
            for child in (value if isinstance(value, list) else [value])
            if isinstance(child, ast.AST)
        ]
        roots = children + roots


def _is_told(node: ast.expr) -> bool:
    """Whether a statement only tells or forbids something."""
    if isinstance(node, ast.Constant):
        return True
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return name.rpartition(".")[2] in (
        "static_assert",
        "static_print",
        "device_assert",
        "device_print",
    )


def family_of(found: FoundSpec) -> str:
    """The package that declares a spec, or its file: the kernels of one are sampled together."""
    return found.module.__package__ or found.reference


def sample(
    subjects: Sequence[Subject], size: int, seed: int, operators: frozenset[str] = frozenset()
) -> Mapping[str, tuple[Mutant, ...]]:
    """By kernel, `size` mutants of each family of `subjects` (all where there are fewer).

    Each mutant goes to one kernel that reaches it; operators take turns, and within one the kernels. The same
    for the same sources and seed. `operators` narrows to some.
    """
    chosen: dict[str, list[Mutant]] = {one.found.spec.name: [] for one in subjects}
    families: dict[str, list[Subject]] = {}
    for one in subjects:
        families.setdefault(family_of(one.found), []).append(one)
    for family in families.values():
        for kernel, mutant in _take(family, size, seed, operators):
            chosen[kernel].append(mutant)
    return {name: tuple(mutants) for name, mutants in chosen.items()}


def _take(
    family: Sequence[Subject], size: int, seed: int, operators: frozenset[str]
) -> list[tuple[str, Mutant]]:
    queues = {
        operator.name: _queue(family, operator.name, seed)
        for operator in OPERATORS
        if not operators or operator.name in operators
    }
    taken: dict[str, str] = {}  # the kernel, by the name of the mutant
    found: list[tuple[str, Mutant]] = []
    while len(found) < size and any(queues.values()):
        for queue in queues.values():
            while queue:
                kernel, mutant = queue.pop(0)
                if mutant.name not in taken:
                    taken[mutant.name] = kernel
                    found.append((kernel, mutant))
                    break
            if len(found) == size:
                break
    return found


def _queue(family: Sequence[Subject], operator: str, seed: int) -> list[tuple[str, Mutant]]:
    """Pairs of a kernel and a mutant of one operator, in the seed's order, the kernels in turn."""
    turns: list[tuple[int, str, str, Mutant]] = []
    for one in family:
        kernel = one.found.spec.name
        mine = [
            (_order(seed, operator, kernel, mutant), kernel, mutant)
            for mutant in one.mutants
            if operator in mutant.operators
        ]
        mine.sort(key=lambda entry: entry[0])
        turns += [
            (turn, order, kernel, mutant) for turn, (order, kernel, mutant) in enumerate(mine)
        ]
    turns.sort(key=lambda entry: entry[:2])
    return [(kernel, mutant) for _, _, kernel, mutant in turns]


def _order(seed: int, *words: object) -> str:
    parts = [word.name if isinstance(word, Mutant) else str(word) for word in words]
    return hashlib.sha256("\0".join([str(seed), *parts]).encode()).hexdigest()
