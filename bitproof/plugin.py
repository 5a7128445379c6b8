"""The pytest plugin's light half: options, and waking `bitproof.suite` for a run that concerns it.

It stays asleep, imports nothing heavy and sets no environment in a run that names neither `properties`
nor a spec.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

# In a checkout `bitproof/properties` is a link, and a run names the folder it leads to.
PROPERTIES = (Path(__file__).parent / "properties").resolve()
CHECKOUT = PROPERTIES.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options that narrow or widen a property run."""
    group = parser.getgroup("bitproof", "property-based differential testing of Triton kernels")
    group.addoption(
        "--spec",
        action="append",
        default=[],
        metavar="REF",
        help="test the specs in this module, module:NAME or .py file instead of the built-in ones",
    )
    group.addoption(
        "--kernel", action="append", default=[], metavar="NAME", help="test only this kernel"
    )
    group.addoption(
        "--lane", help="where kernels run: cuda or interpreter (default: by the machine)"
    )
    group.addoption(
        "--runs",
        type=int,
        metavar="N",
        help="runs of each reproducibility check (default: the spec's)",
    )
    group.addoption(
        "--max-examples", type=int, metavar="N", help="examples of each kernel and check"
    )
    group.addoption(
        "--seconds",
        type=int,
        metavar="N",
        help="begin no case of a kernel and check after N seconds",
    )
    group.addoption(
        "--isolate",
        action="store_true",
        help="judge every case in a child process, so that a hang costs one case (slower)",
    )


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
    if config.getoption("spec"):
        return True
    for argument in config.args:
        target = str(argument).split("::")[0]
        if config.getoption("pyargs") and f"{target}.".startswith("bitproof.properties."):
            return True
        path = (config.invocation_params.dir / target).resolve()
        if path.is_relative_to(PROPERTIES) or path == CHECKOUT:
            return True
    return False
