"""The pytest plugin's light half: options, and waking `bitproof.suite` for a run that is ours.

A run is ours when it names `properties` or a spec. In every other run the plugin sleeps: it imports
nothing heavy, writes nothing, sets no environment, and its only options are called `--bitproof-...`.
The short names, such as `--runs`, belong to whoever wants them: they are added in runs that are ours, once
the first conftests have added theirs, and only where nobody holds them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from bitproof.options import OPTIONS, ask, destination

# In a checkout `bitproof/properties` is a link, and a run names the folder it leads to.
PROPERTIES = (Path(__file__).parent / "properties").resolve()
CHECKOUT = PROPERTIES.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that narrow or widen a property run, under names that are nobody else's."""
    for name in OPTIONS:
        _add(parser, name, f"--bitproof-{name}")


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, object, object]:
    """Once the first conftests have added their options: the short names that are left, in our runs.

    In every other run a conftest that is loaded later may still add any of these names.
    """
    result = yield
    if _may_be_ours(early_config, parser, args):
        for name in [name for name in OPTIONS if not _is_held(parser, name, args)]:
            _add(parser, name, f"--{name}")
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Wake the suite, before Hypothesis looks for its profile and anything imports triton."""
    if not concerned(config):
        return
    from bitproof.harness.errors import BitproofError
    from bitproof.suite import Suite

    try:
        suite = Suite.for_config(config)
    except BitproofError as error:
        raise pytest.UsageError(str(error)) from error
    config.pluginmanager.register(suite, "bitproof-suite")


def concerned(config: Any) -> bool:
    """Whether this run names a spec, or `properties` by path, by import name, or by the whole checkout."""
    pyargs = bool(config.getoption("pyargs"))
    return bool(ask(config, "spec")) or _name_properties(
        config.args, config.invocation_params.dir, pyargs=pyargs
    )


def _add(parser: pytest.Parser, name: str, flag: str) -> None:
    group = parser.getgroup("bitproof", "property-based differential testing of Triton kernels")
    group.addoption(flag, dest=destination(name), **OPTIONS[name])


def _is_held(parser: pytest.Parser, name: str, args: list[str]) -> bool:
    """Whether somebody has an option `--name`: a parser that knows none returns the flag as unknown.

    The run's own arguments follow it, since some option may be required.
    """
    try:
        _, unknown = parser.parse_known_and_unknown_args([f"--{name}", *args])
    except pytest.UsageError:
        return True
    return f"--{name}" not in unknown


def _may_be_ours(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> bool:
    """What `concerned` will answer, before the command line can be parsed to the end.

    The value of an option that is not known yet counts as a target here, so that this is true of a few
    runs that turn out to be others'.
    """
    known = parser.parse_known_args(args)
    if getattr(known, destination("spec")):
        return True
    if any(arg.partition("=")[0] == "--spec" for arg in args) and not _is_held(
        parser, "spec", args
    ):
        return True
    folder = early_config.invocation_params.dir
    targets = known.file_or_dir or early_config.getini("testpaths") or [folder]
    return _name_properties(targets, folder, pyargs=known.pyargs)


def _name_properties(targets: Iterable[object], folder: Path, *, pyargs: bool) -> bool:
    """Whether a target, as pytest run in `folder` takes it, is the checkout or lies in `properties`."""
    for target in targets:
        name = str(target).split("::")[0]
        if pyargs and f"{name}.".startswith("bitproof.properties."):
            return True
        path = (folder / name).resolve()
        if path.is_relative_to(PROPERTIES) or path == CHECKOUT:
            return True
    return False
