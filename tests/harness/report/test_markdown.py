"""A run as Markdown."""

from __future__ import annotations

from bitproof.harness.report import markdown, nights
from tests.harness.report.summarising import FULL, HOSTILE, entry, summary


def test_markdown_begins_with_the_verdict_and_has_each_failure() -> None:
    """In a fence that its own text cannot close, with the command that replays it."""
    changes = nights.compare([entry()], FULL.entries)
    text = markdown.render(FULL, verdict="fell short: 1 failed", changes=changes)
    assert text.startswith("## bitproof fell short: 1 failed\n")
    assert "* **new**: cast memory: it was not judged before; it is failed\n" in text
    assert f"```text\ncast: memory failed\n{HOSTILE}\nreplay    bitproof replay a.json" in text
    assert "* cast invariances: never on a Sunday applied\n" in text
    assert markdown.render(summary(), verdict="held", changes=[]).endswith(
        "Nothing new, gone, slower or nearer to its bound.\n"
    )


def test_nothing_that_is_named_becomes_markup() -> None:
    """Names are shown as they are, a fence is longer than any run of ticks within."""
    told = entry(kernel=HOSTILE, outcome="failed", report="a\n````\n<b>", record="r.json")
    text = markdown.render(summary(told), verdict="", changes=None)
    title = next(line for line in text.splitlines() if line.startswith("### "))
    assert title.startswith("### \\<script\\>alert")
    assert "\n`````text\na\n````\n<b>\nbitproof replay r.json\n`````\n" in text
