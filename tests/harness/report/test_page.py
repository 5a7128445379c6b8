"""The page of a run: one file that says everything and runs nothing; a browser and axe find no fault."""

from __future__ import annotations

import base64
import html.parser
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest

from bitproof.harness.errors import EnvironmentUnfit
from bitproof.harness.report import nights, page, plots
from bitproof.harness.report.page import Beside
from tests.harness.report.summarising import FULL, HOSTILE, entry, samples, summary

SWEEP = {
    "kernel": "cast",
    "format": "e4m3",
    "versions": {"lane": "cuda"},
    "tried": 4294967296,
    "wrong": 2,
    "toward_zero": 2,
    "away_from_zero": 0,
    "largest_ulps": 1,
    "first": [{"input": "0x3f880001", "value": HOSTILE}],
}
MUTANTS = {
    "schemaVersion": "2",
    "files": {
        "gemm.py": {
            "mutants": [
                {"status": "Killed", "killedBy": ["agreement"]},
                {"status": "Killed", "killedBy": ["agreement"]},
                {"status": "Survived"},
            ]
        }
    },
}
ATTRIBUTION = {"kernel": "gdn2", "output": "o", "points": [{"name": HOSTILE, "alone": 0.004}]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a run that has everything."""
    folder = tmp_path_factory.mktemp("run")
    for name, plain in (
        ("sweeps/a.census.json", SWEEP),
        ("mutants/report.json", MUTANTS),
        ("attribution/gdn2.json", ATTRIBUTION),
        ("mutants/foreign.json", {"other": 1}),
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(plain))
    (folder / "sweeps" / "damaged.census.json").write_text("{")
    return page.render(
        FULL,
        verdict="fell short: 3 passed",
        changes=nights.compare([entry()], FULL.entries),
        beside=page.find_beside([folder]),
    )


class Reader(html.parser.HTMLParser):
    """Text and tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize(
    "said",
    [
        "fell short: 3 passed",
        "Exact in every case:",
        "4,294,967,296",
        "lane interpreter, profile bitproof, 12.5 s, torch 2.13.0",
        "new: cast memory: it was not judged before; it is failed",
        "Run it again: bitproof replay a.json --spec b",
        "cast invariances: never on a Sunday applied",
        f"streams unsupported: {HOSTILE}",
        f"cast agreement: {HOSTILE}",
        "worst inf",
        "control",
        "input 0x3f880001",
        "never executed: k.py:5-9 (in f, if A)",
        "configurations of f: 1 of 2 ran, never 1 (BLOCK=8)",
        "Killed 2, Survived 1",
        "agreement 2",
        "gdn2: o",
        "cast lowering for sm_90: failed: contraction",
        "Read with triton 3.9.0.",
    ],
)
def test_the_page_says_everything(whole: str, said: str) -> None:
    """Verdict, changes, failures with replay, what was not judged and why, and what each part found."""
    assert " ".join(said.split()) in " ".join(Reader(whole).text.split())


def test_the_page_stands_alone_and_runs_nothing(whole: str) -> None:
    """No script, no address, no file beside it, whatever a kernel is called; pictures are drawn into it."""
    read = Reader(whole)
    tags = {tag for tag, _ in read.tags}
    assert not tags & {"script", "link", "iframe", "object", "embed", "img", "base", "form"}
    assert "svg" in tags
    for tag, attributes in read.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#"), tag
    assert "url(" not in re.sub(r"url\(#\w+\)", "", whole)
    assert len(whole) < 400_000


def test_a_run_that_held_has_a_page_as_well() -> None:
    """Without what it has nothing of, nor an earlier run."""
    text = page.render(summary(entry()), verdict="held: 1 passed", changes=None, beside=Beside())
    told = Reader(text).text
    assert "held: 1 passed" in told
    assert not [part for part in ("Failures", "Sweeps", "Mutants", "Since") if part in told]
    nothing = page.render(summary(), verdict="nothing", changes=[], beside=Beside())
    assert "Nothing new, gone, slower or nearer to its bound." in Reader(nothing).text


def test_what_draws_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence with the remedy."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(
        EnvironmentUnfit, match=r"needs vl_convert: pip install 'bitproof\[report\]'"
    ):
        page.render(FULL, verdict="", changes=None, beside=Beside())


def test_a_picture_is_drawn_only_where_there_is_something_to_see() -> None:
    """Not of exact outputs; of distances one for each size that varies."""
    assert len(plots.draw_distances(samples(), "y")) == 1
    assert plots.draw_distances(samples(), "exact") == []
    assert plots.draw_distances([], "y") == []
    assert plots.draw_ulps({"0": 7}) == ""
    assert plots.draw_bars({}, "seconds") == ""
    drawn = plots.draw_ulps({"0": 7, "-0.5": 2})
    assert "toward zero" in drawn


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WIDE, NARROW = "1280,2000", "500,2000"  # the narrowest window that a headless browser opens


def _browse(path: Path, *options: str) -> str:
    if CHROMIUM is None:
        pytest.skip("no Chromium here: the page was not tried in a browser")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    profile = f"--user-data-dir={path.parent / 'profile'}"
    ended = subprocess.run(
        [*command, profile, *options, path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return ended.stdout


_TELL = """
function tell(found) {
  const text = btoa(encodeURIComponent(JSON.stringify(found)));
  document.body.replaceChildren('FOUND' + text + 'END');
}
"""


def _run_within(whole: str, folder: Path, script: str, window: str) -> dict[str, object]:
    """What `script` tells, run at the end of a copy of the page that may run it."""
    copy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", whole)
    path = folder / "copy.html"
    path.write_text(f"{copy}<script>{_TELL}{script}</script>", encoding="utf-8")
    dom = _browse(path, f"--window-size={window}", "--virtual-time-budget=20000", "--dump-dom")
    encoded = re.search(r"FOUND([\w+/=]+)END", dom)
    assert encoded is not None, dom[-2000:]
    plain = urllib.parse.unquote(base64.b64decode(encoded[1]).decode())
    found: dict[str, object] = json.loads(plain)
    return found


@pytest.mark.browser
@pytest.mark.parametrize("window", [WIDE, NARROW])
def test_a_browser_shows_the_page_within_its_width(whole: str, tmp_path: Path, window: str) -> None:
    """Nothing of it is wider than the window but what scrolls by itself, and the verdict stands on top."""
    script = """
    const found = {
      page: document.documentElement.scrollWidth, window: window.innerWidth,
      top: document.querySelector('h1').getBoundingClientRect().top,
      drawn: [...document.querySelectorAll('svg')].every(svg => svg.getBoundingClientRect().width > 100)};
    tell(found);"""
    found = _run_within(whole, tmp_path, script, window)
    assert isinstance(found["page"], int)
    assert isinstance(found["window"], int)
    assert isinstance(found["top"], (int, float))
    assert found["page"] <= found["window"]
    assert found["top"] < 100
    assert found["drawn"] is True


@pytest.mark.browser
@pytest.mark.parametrize("window", [WIDE, NARROW])
def test_axe_finds_no_fault_with_the_page(whole: str, tmp_path: Path, window: str) -> None:
    """By all of its rules; and it would: a picture without a name is one."""
    plan = importlib.util.find_spec("axe_playwright_python")
    if plan is None or plan.origin is None:
        pytest.skip("axe-core is not installed: pip install --no-deps axe-playwright-python")
    (axe,) = Path(plan.origin).parent.rglob("axe.min.js")
    script = f"""{axe.read_text(encoding="utf-8")}
    axe.run().then(said => {{ const found = {{
      faults: said.violations.map(one => one.id), passed: said.passes.length }}; tell(found); }})"""
    found = _run_within(whole, tmp_path, script, window)
    assert found["faults"] == []
    assert found["passed"]
    spoilt = whole.replace(' role="img" aria-label="', ' role="img" data-label="')
    assert "role-img-alt" in str(_run_within(spoilt, tmp_path, script, window)["faults"])
