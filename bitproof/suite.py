"""The pytest plugin's heavy half: lane, profiles, parametrisation over specs, verdicts and the summary."""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.errors import InvalidArgument

from bitproof import workers
from bitproof.harness import checks, lanes
from bitproof.harness.errors import BitproofError, UsageError
from bitproof.harness.outcomes import Outcome
from bitproof.harness.report import failure, files, records, summary
from bitproof.harness.search import falsify, journal, profiles
from bitproof.harness.search.isolation import Careful
from bitproof.harness.search.journal import Journal
from bitproof.harness.subjects.discovery import FoundSpec, describe_mistakes, locate, require_sound
from bitproof.harness.subjects.ranks import parse_ranks, with_ranks_where_taken
from bitproof.harness.vocabulary import CHECKS
from bitproof.options import ask

PROPERTIES = (Path(__file__).parent / "properties").resolve()
Judge = Callable[[str, FoundSpec], None]
Conclude = Callable[[str, FoundSpec, Callable[[], summary.Entry]], None]


class Suite:
    """Registered as a plugin for the length of one run; one per process, workers included."""

    def __init__(self, config: pytest.Config, lane: str, profile: str) -> None:
        """Remember what the run was asked; `for_config` prepares the process first."""
        self._config = config
        self._lane = lane
        self._profile = profile
        self._began = time.time()
        self._found: tuple[FoundSpec, ...] | None = None
        self._unsound: tuple[FoundSpec, ...] = ()
        self._entries: list[summary.Entry] = []
        self._buried: list[Path] = []
        self._execute: Careful | None = None

    @classmethod
    def for_config(cls, config: pytest.Config) -> Suite:
        """Choose the lane, keep workers apart, and make the profiles known.

        Raises UsageError or EnvironmentUnfit in one sentence; touches no GPU.
        """
        for option in ("runs", "max-examples", "seconds", "hang-limit"):
            value = ask(config, option)
            least = 2 if option == "runs" else 1
            if value is not None and value < least:
                raise UsageError(f"--{option} must be at least {least}, got {value}")
        workers.share_out((), ask(config, "shard"))
        lane = lanes.choose(ask(config, "lane"))
        files.hide(files.FOLDER)
        workers.outlive_crashes(config)
        workers.separate(workers.name_of(config), workers.count(config))
        profiles.register()
        profile = config.getoption("--hypothesis-profile", None) or profiles.default()
        try:
            settings.load_profile(profile)
        except InvalidArgument as error:
            known = ", ".join((profiles.DEFAULT, profiles.CI, profiles.NIGHTLY))
            raise UsageError(f"--hypothesis-profile {profile}: choose one of {known}") from error
        return cls(config, lane, profile)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Find the specs before tests are collected or workers start, so that a mistake is said once.

        And what dead runs left in flight.
        """
        self._specs()
        if not workers.name_of(self._config):
            self._buried += journal.bury_dead()

    def pytest_report_header(self) -> list[str]:
        """The lane, in pytest's header, and what dead runs left: this one may not come to its end either."""
        chosen = "as asked" if ask(self._config, "lane") else "chosen by the machine"
        lane = f"bitproof: lane {self._lane} ({chosen}), profile {self._profile}"
        return [lane, *map(_tell_buried, self._buried)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_auto_num_workers(self) -> int | None:
        """`-n auto` on the cuda lane: a few workers a card, so that cards are shared on purpose."""
        cores = os.cpu_count() or 1
        return min(cores, 16 * lanes.gpus()) if lanes.family(self._lane) == "cuda" else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> object | None:
        """On the cuda lane, where a test may compile for minutes, idle workers take what others have left."""
        if lanes.family(self._lane) == "interpreter" or config.getoption("dist") != "load":
            return None
        from xdist.scheduler import WorkStealingScheduling

        scheduler: object = WorkStealingScheduling(config, log)
        return scheduler

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrise the properties over the specs, sorted by name; a check over those it applies to."""
        if "kernel" not in metafunc.fixturenames or not _is_property(metafunc.module):
            return
        check = metafunc.function.__name__.removeprefix("test_")
        chosen = [
            item
            for item in self._specs()
            if check not in CHECKS or check in checks.names(item.spec)
        ]
        metafunc.parametrize("kernel", chosen, ids=[item.spec.name for item in chosen])

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, items: list[pytest.Item]
    ) -> None:
        """One failing test for each spec that has mistakes, unless single tests were asked for.

        Of all, those of this machine's shard stay.
        """
        if not all("::" in argument for argument in self._config.args):
            items += [
                UnsoundSpec.from_parent(session, name=item.spec.name, found=item)
                for item in self._unsound
            ]
        items[:], others = workers.share_out(items, ask(self._config, "shard"))
        if others:
            self._config.hook.pytest_deselected(items=others)

    @pytest.fixture
    def conclude(self, request: pytest.FixtureRequest) -> Conclude:
        """`conclude(what, kernel, judged)`: take up the entry that `judged()` makes, fail or skip by it."""

        def conclude(what: str, kernel: FoundSpec, judged: Callable[[], summary.Entry]) -> None:
            try:
                entry = judged()
            except BitproofError as error:
                text = f"{kernel.spec.name}: {what} cannot be judged: {error}"
                raise pytest.fail.Exception(text, pytrace=False) from None
            request.node.user_properties.append(("bitproof", dataclasses.asdict(entry)))
            if entry.outcome in _FAILING or (
                entry.outcome == Outcome.NOT_DEMONSTRATED and self._profile == profiles.NIGHTLY
            ):
                pytest.fail(entry.report, pytrace=False)
            if entry.outcome != Outcome.PASSED:
                pytest.skip(_skipped(entry))

        return conclude

    @pytest.fixture
    def judge(self, conclude: Conclude) -> Judge:
        """`judge(check, kernel)`: search for a failing case, report and record what is found."""

        def judge(check: str, kernel: FoundSpec) -> None:
            conclude(check, kernel, lambda: self._judge(check, kernel))

        return judge

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """In pytest's summary of one line a test, say what was found: the test's id says where."""
        report = yield
        crash = getattr(report.longrepr, "reprcrash", None)
        judged = dict(item.user_properties).get("bitproof")
        if report.failed and crash is not None and isinstance(judged, dict) and judged["record"]:
            crash.message = judged["report"].splitlines()[1]  # after the line that names the kernel
        return report

    def _judge(self, check: str, kernel: FoundSpec) -> summary.Entry:
        """As `_search` does; where a spec of the run wants its card alone, by turns with other workers.

        Then a process that judged ends with its turn, and with it what it holds of the card.
        """
        alone = any(item.spec.alone for item in self._specs())
        shared = lanes.family(self._lane) == "cuda" and workers.count(self._config) > 1
        if not (alone and shared):
            return self._search(check, kernel)
        with workers.hold_card(alone=kernel.spec.alone):
            try:
                return self._search(check, kernel)
            finally:
                if self._execute is not None:
                    self._execute.close()
                self._execute = None

    def _search(self, check: str, kernel: FoundSpec) -> summary.Entry:
        lane = lanes.present()
        if self._execute is None:
            name = f"{workers.name_of(self._config) or 'main'}-{os.getpid()}.json"
            self._execute = Careful.on(
                lane,
                known=self._specs(),
                journal=Journal(path=journal.FOLDER / name, lane=lane.name),
                timeout=ask(self._config, "hang-limit"),
            )
            if kernel.spec.alone:
                # A copy has the allocator's settings of this process, a new one has those of its start.
                self._execute = dataclasses.replace(self._execute, copies=False)
        execute = functools.partial(self._execute, kernel, check)
        limit = ask(self._config, "max-examples")
        result = falsify.search(
            kernel.spec,
            check,
            lane,
            execute=execute,
            max_examples=limit or profiles.examples(kernel.spec, check, lane.name, self._profile),
            seconds=ask(self._config, "seconds"),
        )
        report, path = "", None
        if result.findings is not None and result.inputs is not None:
            versions = self._execute.versions()
            path = records.save(kernel, check, result.inputs, result.findings, versions)
            report = failure.describe(kernel, check, result.inputs, result.findings, versions, path)
        elif result.outcome is Outcome.NOT_DEMONSTRATED:
            why = result.undemonstrated or "; ".join(sorted(result.reasons))
            report = f"{kernel.spec.name}: {check} not demonstrated: {why}"
        return result.entry(report=report, record=path)

    def _specs(self) -> tuple[FoundSpec, ...]:
        if self._found is None:
            try:
                every = locate(ask(self._config, "spec"), ask(self._config, "kernel"))
                found = tuple(item for item in every if not item.mistakes)
                if not found:
                    require_sound(every)
                ranks = ask(self._config, "ranks")
                if ranks is not None:
                    found = with_ranks_where_taken(found, parse_ranks(ranks))
            except BitproofError as error:
                raise pytest.UsageError(str(error)) from error
            self._unsound = tuple(item for item in every if item.mistakes)
            runs = ask(self._config, "runs")
            self._found = tuple(item.with_runs(runs) for item in found) if runs else found
        return self._found

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what each property measured; under xdist this is where workers' reports arrive."""
        if report.when == "call":
            for name, value in report.user_properties:
                if name == "bitproof" and isinstance(value, dict):
                    self._entries.append(summary.receive(value))

    def pytest_sessionfinish(self) -> None:
        """Nothing is in flight any more, so that the journal goes."""
        if self._execute is not None:
            self._execute.close()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """A worker that died left the case it was judging on disk: make that a record."""
        if error:
            self._buried += journal.bury_dead()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """What the run's cases covered, and where the machine-readable summary lies."""
        if workers.name_of(self._config):
            return
        for path in self._buried:
            terminalreporter.write_line(_tell_buried(path))
        if not self._entries:
            return
        try:
            path = summary.write(
                self._entries,
                lane=self._lane,
                profile=self._profile,
                seconds=time.time() - self._began,
            )
        except BitproofError as error:
            told = f"no summary: {error}"
        else:
            told = f"summary: {path}"
        terminalreporter.section("bitproof")
        for line in summary.lines(self._entries):
            terminalreporter.write_line(line)
        terminalreporter.write_line(told)


class UnsoundSpec(pytest.Item):
    """Stands in a run for a spec that has mistakes: it fails, and the other specs are judged."""

    def __init__(self, *, found: FoundSpec, **node: Any) -> None:
        """`node` is what pytest gives every node."""
        super().__init__(nodeid=f"spec[{found.spec.name}]", **node)
        self._found = found

    def runtest(self) -> None:
        """Tell all the mistakes."""
        pytest.fail(describe_mistakes(self._found), pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """What the failure is called in pytest's report."""
        return self.path, None, self.nodeid


def _tell_buried(record: Path) -> str:
    """What a process left that ended over a case."""
    command = records.load(record).replay
    return f"a process died over one case, told by nobody: {command}"


def _skipped(entry: summary.Entry) -> str:
    """Why a property is skipped; names the kernel and the check."""
    reason = entry.report or "; ".join(entry.reasons)
    if reason.startswith((f"{entry.kernel}: ", f"{entry.kernel} for ")):
        return reason
    return f"{entry.kernel}: {entry.check} {entry.outcome}: {reason}"


_FAILING = frozenset(str(outcome) for outcome in Outcome if outcome.is_defect)


def _is_property(module: Any) -> bool:
    return Path(str(module.__file__)).resolve().is_relative_to(PROPERTIES)
