"""Draws errors as horizontal bars in a PNG, with matplotlib, which is an optional dependency."""

from __future__ import annotations

import importlib.util
import io
import math
from collections.abc import Mapping
from pathlib import Path

from bitproof.harness.errors import EnvironmentUnfit, UsageError
from bitproof.harness.report import files


def require(path: Path) -> None:
    """Raise UsageError for a file that is no .png, EnvironmentUnfit where matplotlib is missing."""
    if path.suffix.lower() != ".png":
        raise UsageError(f"--plot {path}: a plot is written as PNG: give a name that ends in .png")
    if importlib.util.find_spec("matplotlib") is None:
        raise EnvironmentUnfit("--plot needs matplotlib: pip install 'bitproof[plot]'")


def save(
    path: Path, title: str, panels: Mapping[str, Mapping[str, float]], target: float | None
) -> None:
    """Draw one panel of bars for each of `panels`, in per cent, with a line at `target`."""
    from matplotlib.figure import Figure

    shown = {heading: bars for heading, bars in panels.items() if bars}
    counts = [len(bars) for bars in shown.values()]
    figure = Figure(figsize=(8, 1.2 + sum(0.5 + 0.3 * count for count in counts)))
    figure.set_layout_engine("constrained")
    figure.suptitle(title)
    axes = figure.subplots(
        len(shown), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": counts}
    )
    for (heading, bars), axis in zip(shown.items(), axes[:, 0], strict=True):
        drawn = axis.barh(list(bars), [100 * e if math.isfinite(e) else 0.0 for e in bars.values()])
        axis.bar_label(drawn, [f"{100 * error:.4g}" for error in bars.values()], padding=3)
        axis.invert_yaxis()
        axis.margins(x=0.12)
        axis.set_title(heading, loc="left", fontsize="medium")
        if target is not None:
            axis.axvline(100 * target, color="black", linestyle="--", linewidth=1)
    axes[-1, 0].set_xlabel("relative RMS error, %")
    drawing = io.BytesIO()
    figure.savefig(drawing, format="png", dpi=150)
    files.save(path, drawing.getvalue())
