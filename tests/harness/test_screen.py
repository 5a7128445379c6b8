"""The progress of long work: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import io
import sys

import pytest

from bitproof.harness.commands.screen import progress


def test_progress_is_a_line_now_and_then_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The share reached, the note, and an estimate of what is left."""
    clock = iter((0.0, 9.0, 20.0, 29.0))
    monkeypatch.setattr("bitproof.harness.commands.screen.time.monotonic", lambda: next(clock))
    with progress("cast", 100) as tell:
        for done in (5, 20, 30):
            tell(done, "3 wrong")
    assert capsys.readouterr().err == "cast: 20.0%, 3 wrong, about 80 s left\n"


def test_progress_is_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn on standard error, gone when the work is done."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress("cast", 100) as tell:
        tell(40, "3 wrong")
    assert "cast" in screen.getvalue()
    assert "40%" in screen.getvalue()
