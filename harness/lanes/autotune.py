"""Autotuned kernels: the configuration is the case's, never the fastest of the day, and what ran is noted.

Tuning itself can be had as well, without its clock: several configurations one after another on the launch's
own tensors, with the hooks that are to restore them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from triton.runtime.autotuner import Autotuner

from bitproof.harness.exercised import Configuration, note_configuration

# Of so many configurations, tuning shows what one of them leaves to the next.
_TRIED = 4


@contextmanager
def force_config(number: int, *, tuning: bool = False) -> Iterator[None]:
    """While active, an autotuned kernel runs in its configuration `number`, modulo how many it has.

    Where early pruning leaves that one out, another takes its place. With `tuning` the autotuner tries some
    configurations first, that one among them.
    """
    original = Autotuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        every = self.configs
        chosen = [prepare(self, number, args, kwargs, tuning=tuning)]
        self.configs = chosen  # with one there is nothing to time
        try:
            return original(self, *args, **kwargs)
        finally:
            self.configs = every

    Autotuner.run = run
    try:
        yield
    finally:
        Autotuner.run = original


def prepare(
    tuner: Any, number: int, args: Sequence[Any], kwargs: Mapping[str, Any], *, tuning: bool
) -> Any:
    """The configuration `number` of a launch, or what stands for it; noted, and tuned before where asked."""
    left = _prune(tuner, args, kwargs)
    wanted = tuner.configs[number % len(tuner.configs)]
    chosen = wanted if wanted in left else left[number % len(left)]
    if len(tuner.configs) > 1:
        note_configuration([_name(tuner, one) for one in left], _name(tuner, chosen))
    if tuning and len(left) > 1:
        others = [one for one in left if one is not chosen]
        _tune(tuner, [*others[: _TRIED - 1], chosen], args, kwargs)
    return chosen


def _prune(tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The configurations that are possible for these arguments; a model of their speed has no voice."""
    if tuner.early_config_prune is None:
        return list(tuner.configs)
    named = dict(zip(tuner.arg_names, args, strict=False))
    left = list(tuner.early_config_prune(tuner.configs, named, **kwargs))
    if not left:
        raise ValueError("early_config_prune left no configuration")
    return left


def _name(tuner: Any, config: Any) -> Configuration:
    number = tuner.configs.index(config) if config in tuner.configs else len(tuner.configs)
    settings = {name: value for name, value in config.all_kwargs().items() if value is not None}
    return Configuration(
        kernel=tuner.base_fn.__name__,
        number=number,
        settings=", ".join(f"{name}={value}" for name, value in settings.items()),
    )


def _tune(tuner: Any, tried: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """What the autotuner does on its first call, with a benchmark that runs each one twice."""
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    known = vars(tuner)
    earlier = known.get("do_bench")
    known["do_bench"] = _run_twice
    try:
        for config in tried:
            tuner._bench(*args, config=config, **kwargs)
    finally:
        known.pop("do_bench")
        if earlier is not None:
            known["do_bench"] = earlier
    tuner.pre_hook({**tuner.nargs, **kwargs, **tried[-1].all_kwargs()}, reset_only=True)


def _run_twice(call: Callable[[], object], quantiles: object = None) -> list[float]:
    call()
    call()
    return [0.0, 0.0, 0.0]
