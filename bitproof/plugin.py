"""The pytest plugin's light half: options, and waking `bitproof.suite` for a run that concerns it.

Installed, it is loaded in every pytest run. In one that names neither `bitproof.properties` nor a spec it
stays asleep: it imports nothing heavy, sets no environment, and writes nothing. Each option is always there
as `--bitproof-NAME`, and as `--NAME` where no other plugin and no conftest has that name.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from bitproof.options import OPTIONS, ask, destination

# In a checkout `bitproof/properties` is a link, and a run names the folder it leads to.
PROPERTIES = (Path(__file__).parent / "properties").resolve()
CHECKOUT = PROPERTIES.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options by their long names."""
    for name in OPTIONS:
        _add(parser, f"--bitproof-{name}", name)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None, Any, Any]:
    """The options by their short names, once every plugin and conftest has had the chance to take them."""
    result = yield
    taken = taken_names(parser)
    for name in OPTIONS:
        if f"--{name}" not in taken:
            _add(parser, f"--{name}", name)
    return result


def taken_names(parser: pytest.Parser) -> set[str]:
    """The options that a run has so far; pytest has no public way to ask."""
    groups = (parser._anonymous, *parser._groups)
    return {name for group in groups for option in group.options for name in option.names()}


def _add(parser: pytest.Parser, option: str, name: str) -> None:
    group = parser.getgroup("bitproof", "property-based differential testing of Triton kernels")
    group.addoption(option, dest=destination(name), **OPTIONS[name])


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
    """Whether this run names a spec, or the properties by path, by import name, or by the whole checkout."""
    if ask(config, "spec"):
        return True
    for argument in config.args:
        target = str(argument).split("::")[0]
        if config.getoption("pyargs") and f"{target}.".startswith("bitproof.properties."):
            return True
        path = (config.invocation_params.dir / target).resolve()
        if path.is_relative_to(PROPERTIES) or path == CHECKOUT:
            return True
    return False
