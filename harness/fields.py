"""What a field of a declaration may hold: each function yields a sentence on a value that does not fit.

A sentence names the field and the value and ends with the remedy. `reject` raises the first of a
declaration's sentences; `harness.spec.find_mistakes` gathers all of a spec's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

from bitproof.harness.errors import SpecError


def reject(where: str, sentences: Iterable[str]) -> None:
    """SpecError with the first sentence, if there is one; `where` names the declaration."""
    for sentence in sentences:
        raise SpecError(f"{where}: {sentence}")


def show(value: object) -> str:
    """A value in a sentence: its text, shortened, and its type where the text does not tell it."""
    text = repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    plain = value is None or isinstance(value, (str, int, float, tuple, frozenset))
    return text if plain else f"{text} ({type(value).__name__})"


def inspect_text(field: str, value: object, what: str) -> Iterator[str]:
    """`value` must be text that is not blank; `what` says of what."""
    if not isinstance(value, str) or not value.strip():
        yield f"{field} must be {what}, as text, got {show(value)}"


def inspect_function(
    field: str, value: object, signature: str, *, optional: bool = False
) -> Iterator[str]:
    """`value` must be callable, or None where it is optional; `signature` says how it is called."""
    if not callable(value) and not (optional and value is None):
        yield f"{field} must be a function {signature}, got {show(value)}"


def inspect_names(field: str, value: object, what: str) -> Iterator[str]:
    """`value` must be a set of text; a single string would be taken for a set of letters."""
    if isinstance(value, str):
        yield f"{field} must be a frozenset of {what}, got {value!r}: write frozenset({{{value!r}}})"
    elif not isinstance(value, Set) or not all(isinstance(name, str) for name in value):
        yield f"{field} must be a frozenset of {what}, got {show(value)}"


def inspect_tuple(field: str, value: object, kind: type | tuple[type, ...]) -> Iterator[str]:
    """`value` must be a tuple, or a list, of `kind`; a single one is told how to become one."""
    word = kind.__name__ if isinstance(kind, type) else " or ".join(each.__name__ for each in kind)
    if isinstance(value, kind):
        yield f"{field} must be a tuple of {word}, got {show(value)}: write ({value!r:.40},)"
    elif not isinstance(value, (tuple, list)) or not all(isinstance(one, kind) for one in value):
        yield f"{field} must be a tuple of {word}, got {show(value)}"


def inspect_choice(field: str, value: object, known: Sequence[str]) -> Iterator[str]:
    """`value` must be one of `known`."""
    if value not in known:
        yield f"{field} names {value!r}: choose from {', '.join(known)}"


def inspect_choices(field: str, value: Any, known: Sequence[str]) -> Iterator[str]:
    """`value` must be a tuple of words out of `known`."""
    wrong = list(inspect_tuple(field, value, str))
    yield from wrong
    if not wrong:
        for word in value:
            yield from inspect_choice(field, word, known)


def inspect_count(field: str, value: object, least: int) -> Iterator[str]:
    """`value` must be an integer of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        yield f"{field} must be an integer of at least {least}, got {show(value)}"
