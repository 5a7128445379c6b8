"""The pictures of a report, as SVG that stands in a page without scripts, fonts or network.

They are described in Vega-Lite and drawn by vl-convert, which comes with `pip install 'bitproof[report]'`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bitproof.harness.errors import EnvironmentUnfit
from bitproof.harness.report.measured import EDGES
from bitproof.harness.report.summary import Sample

# Features of cases that one picture shows, side by side.
_SHOWN = 3
_WIDTH = 220
_HEIGHT = 160
# Drawn in the place of an infinite distance, which no axis has.
_CEILING = 1e3
_CONFIG: dict[str, Any] = {
    "aria": False,
    "font": "sans-serif",
    "background": "#ffffff",
    "axis": {"labelColor": "#333333", "titleColor": "#333333"},
    "view": {"stroke": "#cccccc"},
}
_RANGES = [f"-{edge:g}" for edge in EDGES[:0:-1]] + ["0"] + [f"+{edge:g}" for edge in EDGES[1:]]


def require() -> None:
    """EnvironmentUnfit, with the remedy, where what draws is not installed."""
    try:
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise EnvironmentUnfit(
            f"a page with pictures needs {error.name}: pip install 'bitproof[report]'"
        ) from error


def draw_distances(samples: Sequence[Sample], output: str) -> list[str]:
    """Distance over bound of `output` in each case, a picture for each of the features that vary most.

    A line marks the bound; an infinite distance is drawn at the top. None where there is nothing to see.
    """
    points = [
        (sample, _CEILING if value is None or math.isinf(value) else min(value, _CEILING))
        for sample in samples
        if output in sample.distances
        for value in (sample.distances[output],)
    ]
    if not any(distance for _, distance in points):
        return []
    names = _varied([sample for sample, _ in points])
    panels = []
    for name in names:
        rows = [
            {"x": sample.sizes[name], "y": round(distance, 6)}
            for sample, distance in points
            if name in sample.sizes
        ]
        scale = {"type": "symlog" if max(row["x"] for row in rows) > 100 else "linear"}
        panels.append(
            {
                "width": _WIDTH,
                "height": _HEIGHT,
                "layer": [
                    {
                        "data": {"values": rows},
                        "mark": {"type": "point", "size": 14, "color": "#1f5fa8"},
                        "encoding": {
                            "x": {
                                "field": "x",
                                "type": "quantitative",
                                "title": name,
                                "scale": scale,
                                "axis": {"tickCount": 5},
                            },
                            "y": {
                                "field": "y",
                                "type": "quantitative",
                                "title": "error / bound",
                                "scale": {"type": "symlog", "constant": 0.1},
                            },
                        },
                    },
                    {
                        "data": {"values": [{"y": 1}]},
                        "mark": {"type": "rule", "color": "#b3261e", "strokeDash": [4, 3]},
                        "encoding": {"y": {"field": "y", "type": "quantitative"}},
                    },
                ],
            }
        )
    return [_draw(panel) for panel in panels]


def _varied(samples: Sequence[Sample]) -> list[str]:
    """The names of the sizes with the most values among these cases; a launch's own last."""
    values: dict[str, set[int]] = {}
    for sample in samples:
        for name, value in sample.sizes.items():
            values.setdefault(name, set()).add(value)
    several = [name for name, seen in values.items() if len(seen) > 1]
    several.sort(key=lambda name: (name.startswith("launch."), -len(values[name]), name))
    return several[:_SHOWN]


def draw_ulps(counts: Mapping[str, int]) -> str:
    """How many elements lie how many ulps toward zero or away from it; "" where all are exact."""
    if not any(count for name, count in counts.items() if name != "0"):
        return ""
    used = [_RANGES.index(name) for name in counts if name in _RANGES]
    shown = _RANGES[min(used) : max(used) + 1]
    side = {"-": "toward zero", "+": "away from zero", "0": "exact"}
    rows = [{"range": name, "count": counts.get(name, 0), "side": side[name[0]]} for name in shown]
    encoding = {
        "x": {
            "field": "range",
            "type": "ordinal",
            "sort": shown,
            "title": "up to so many ulps (of the output's format)",
        },
        "y": {
            "field": "count",
            "type": "quantitative",
            "title": "elements",
            "scale": {"type": "symlog"},
        },
        "color": {
            "field": "side",
            "type": "nominal",
            "title": None,
            "scale": {
                "domain": list(side.values()),
                "range": ["#8a3ffc", "#007d79", "#6f6f6f"],
            },
        },
    }
    return _draw(
        {
            "width": 2 * _WIDTH,
            "height": _HEIGHT,
            "data": {"values": rows},
            "mark": "bar",
            "encoding": encoding,
        }
    )


def draw_bars(values: Mapping[str, float], title: str) -> str:
    """A horizontal bar for each of `values`, in their order; "" for none."""
    if not values:
        return ""
    rows = [{"name": name, "value": value} for name, value in values.items()]
    encoding = {
        "y": {"field": "name", "type": "nominal", "sort": list(values), "title": None},
        "x": {"field": "value", "type": "quantitative", "title": title},
    }
    return _draw(
        {"width": 2 * _WIDTH, "data": {"values": rows}, "mark": "bar", "encoding": encoding}
    )


def _draw(chart: dict[str, Any]) -> str:
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg({"config": _CONFIG, **chart}, vl_version="6.1")
    return svg.replace("<svg ", '<svg aria-hidden="true" ', 1)  # the page names it
