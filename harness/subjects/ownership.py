"""Whose code a reference names, told without importing any of it.

A record may come from anybody, so that what it names is imported only where somebody installed it here. A
module counts as a distribution's where the file that would be imported is in that distribution's list of
files, or under the folder of an editable one. Only distributions in Python's own folders of packages are
asked: the current folder and PYTHONPATH may hold anything, one's own idea of a distribution included.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import re
import site
import sysconfig
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bitproof.harness.subjects.discovery import BUILT_IN, was_built_in

# The owner of built-in kernels.
OURS = "bitproof"

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_][A-Za-z_0-9]*)*", re.ASCII)
# Longer than any module's name.
_LONGEST = 300


@functools.lru_cache(maxsize=256)
def find_owner(reference: str) -> str:
    """The distribution that has the module of `reference`, such as "numpy 2.1.0"; "" where none has."""
    target = reference.partition(":")[0]
    if len(target) > _LONGEST or not _NAME.fullmatch(target):
        return ""
    if target == BUILT_IN or was_built_in(target):
        return OURS
    files = _files(target)
    if not files:
        return ""
    for distribution in _distributions():
        if all(_owns(distribution, file, target.partition(".")[0]) for file in files):
            return f"{distribution.metadata['Name']} {distribution.version}"
    return ""


def _files(module: str) -> list[Path]:
    """The files that importing `module` would run, its packages' included; none where one is not found."""
    files, folders, name = [], None, ""
    for part in module.split("."):
        name = f"{name}.{part}".lstrip(".")
        try:
            if folders is None:
                plan = importlib.util.find_spec(name)
            else:
                plan = importlib.machinery.PathFinder.find_spec(name, folders)
        except (ImportError, ValueError, AttributeError):
            return []
        if plan is None:
            return []
        if plan.origin is not None:  # a namespace has no file of its own, nor anything to run
            if not plan.has_location:
                return []
            files.append(Path(plan.origin).absolute())
        folders = list(plan.submodule_search_locations or [])
    return files


@functools.cache
def _distributions() -> tuple[Distribution, ...]:
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    folders.update(site.getsitepackages())
    if site.ENABLE_USER_SITE:
        folders.add(site.getusersitepackages())
    return tuple(importlib.metadata.distributions(path=sorted(folders)))


def _owns(distribution: Distribution, file: Path, name: str) -> bool:
    """Whether `file`, of a module below the top module `name`, came with `distribution`."""
    folder = _editable(distribution)
    if folder is not None and file.resolve().is_relative_to(folder):
        # Its folder may hold more than it installs, tests and whatever somebody put there.
        tops = (distribution.read_text("top_level.txt") or "").split()
        return not tops or name in tops
    return file in _listed(distribution)


@functools.cache
def _listed(distribution: Distribution) -> frozenset[Path]:
    return frozenset(_located(distribution))


def _located(distribution: Distribution) -> Iterator[Path]:
    for file in distribution.files or ():
        if file.suffix in (".py", ".so", ".pyc"):
            yield Path(str(distribution.locate_file(file))).absolute()


@functools.cache
def _editable(distribution: Distribution) -> Path | None:
    """The folder of an editable installation."""
    text = distribution.read_text("direct_url.json")
    try:
        told = json.loads(text) if text else {}
        url = urlsplit(told["url"]) if told["dir_info"]["editable"] else None
    except (ValueError, KeyError, TypeError):
        return None
    return Path(unquote(url.path)).resolve() if url is not None and url.scheme == "file" else None
