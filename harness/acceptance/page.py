"""A verdict as one HTML page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

import json
from pathlib import Path

from bitproof.harness.acceptance.trials import LADDER, TRIALS
from bitproof.harness.acceptance.verdict import Verdict
from bitproof.harness.report.page import open_template

_TEMPLATE = Path(__file__).with_name("evidence.html")


def render(verdict: Verdict, record: Path | None) -> str:
    """The page; `record` is where the verdict was saved.

    EnvironmentUnfit, with the remedy, where what draws it is not installed.
    """
    # Whatever JSON cannot say, such as a tuple, is shown as it is saved.
    told = json.loads(json.dumps(verdict.plain(), default=str))
    tried = {one["trial"] for one in told["evidence"]}
    ratios = {
        name: row
        for one in told["evidence"]
        for name, row in one["facts"].get("ratios", {}).items()
        if row
    }
    page: str = open_template(_TEMPLATE).render(
        told=told,
        receipt=told["receipt"],
        record=record,
        untried=[name for name in TRIALS if name not in tried],
        ratios=ratios,
        powers=[str(power) for power in LADDER],
    )
    return page
