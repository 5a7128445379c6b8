"""The options of a property run, and how to ask for one whichever of its two names was used."""

from __future__ import annotations

from typing import Any

OPTIONS: dict[str, dict[str, Any]] = {
    "spec": {
        "action": "append",
        "default": [],
        "metavar": "REF",
        "help": "test the specs in this module, module:NAME or .py file instead of the built-in ones",
    },
    "kernel": {
        "action": "append",
        "default": [],
        "metavar": "NAME",
        "help": "test only this kernel",
    },
    "lane": {
        "metavar": "LANE",
        "help": "where kernels run: cuda or interpreter (default: by the machine)",
    },
    "runs": {
        "type": int,
        "metavar": "N",
        "help": "runs of each reproducibility check (default: the spec's)",
    },
    "ranks": {
        "metavar": "LIST",
        "help": "numbers of ranks, as 1,2,4,8, of kernels that run on several (default: the spec's)",
    },
    "max-examples": {"type": int, "metavar": "N", "help": "examples of each kernel and check"},
    "seconds": {
        "type": int,
        "metavar": "N",
        "help": "begin no case of a kernel and check after N seconds",
    },
    "shard": {
        "metavar": "K/N",
        "help": "run the K-th of N parts of the tests, for N machines that share a run",
    },
    "hang-limit": {
        "type": int,
        "metavar": "N",
        "help": "a case that gives no answer within N seconds hung (default: 300)",
    },
}


def ask(config: Any, name: str) -> Any:
    """What a run's option `name` is, whichever of its two names was used."""
    return config.getoption(destination(name))


def destination(name: str) -> str:
    """Where pytest keeps the value of option `name`: a place that no other project's option has."""
    return f"bitproof_{name.replace('-', '_')}"
