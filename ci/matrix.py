"""Other targets' code and the interpreter lane under every supported Triton, and where they differ.

    python ci/matrix.py [--versions 3.6.0,3.9.0] [--kernel NAME]... [--max-examples 3]

Each version is installed once into a folder of its own, beside the packages of the Python that runs this,
and runs in processes of its own. Under each: the lowering report for all targets, the properties on the
interpreter lane with few examples, and the tests of what changes between versions. Prints every verdict
that is not the same under all versions, and writes all of them to `.bitproof/matrix/verdicts.json`. Exit 1
when something fell short under some version, 2 when a version could not be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.6.0", "3.7.0", "3.8.0", "3.9.0")
TARGETS = "sm_80,sm_86,sm_89,sm_90,sm_100,sm_120,gfx942,gfx950"
TESTS = ("tests/harness/lowering", "tests/harness/lanes/test_foreign.py")

# (kernel, target or check) -> what came out.
Verdicts = dict[tuple[str, str], str]


def main() -> int:
    """Run every version one after another, each on all cores, and compare."""
    options = parse()
    folder = options.folder.resolve()
    results: dict[str, Verdicts] = {}
    short = 0
    for version in options.versions.split(","):
        site = folder / f"triton-{version}"
        if not prepare(version, site):
            return 2
        verdicts, fell_short = under(version, site, folder / f"run-{version}", options)
        results[version] = verdicts
        short |= fell_short
    folder.mkdir(parents=True, exist_ok=True)
    plain = {v: {" ".join(key): word for key, word in r.items()} for v, r in results.items()}
    (folder / "verdicts.json").write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    print_differences(results)
    return int(short)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--versions", default=",".join(VERSIONS), help="default: %(default)s")
    parser.add_argument("--targets", default=TARGETS, help="default: all")
    parser.add_argument("--kernel", action="append", default=[], metavar="NAME")
    parser.add_argument("--max-examples", type=int, default=3, metavar="N")
    parser.add_argument("--folder", type=Path, default=CHECKOUT / ".bitproof" / "matrix")
    return parser.parse_args()


def prepare(version: str, site: Path) -> bool:
    """Install one version of Triton into `site`, and see that it is the one that gets imported."""
    if not (site / "triton").exists():
        install = ("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site))
        if python(site, CHECKOUT, *install, f"triton=={version}").returncode:
            print(f"triton {version} could not be installed: pip's message above says why")
            return False
    shown = python(site, CHECKOUT, "-c", "import triton; print(triton.__version__)", capture=True)
    if shown.stdout.strip() != version:
        print(f"{site} holds triton {shown.stdout.strip() or 'that fails to import'}: delete it")
        return False
    return True


def under(
    version: str, site: Path, folder: Path, options: argparse.Namespace
) -> tuple[Verdicts, bool]:
    """(verdicts, whether anything fell short) of one version, run in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    print(f"== triton {version}", flush=True)
    report = ("-m", "bitproof", "lowering", *options.kernel, "--targets", options.targets)
    lowering = python(site, folder, *report, "--json", capture=True)
    verdicts = lowering_verdicts(lowering.stdout)
    chosen = [argument for name in options.kernel for argument in ("--kernel", name)]
    pytest = ("-m", "pytest", "-q", "-n", "auto", "-c", str(CHECKOUT / "pyproject.toml"))
    properties = python(
        site,
        folder,
        *(*pytest, str(CHECKOUT / "properties"), "--lane", "interpreter", *chosen),
        *("--ignore", str(CHECKOUT / "properties" / "test_lowering.py")),
        *("--hypothesis-profile", "bitproof-ci", "--max-examples", str(options.max_examples)),
    )
    summary = folder / ".bitproof" / "summary.json"
    if summary.exists():
        verdicts |= property_verdicts(json.loads(summary.read_text(encoding="utf-8")))
    tests = python(site, folder, *pytest, *(str(CHECKOUT / test) for test in TESTS))
    verdicts["tests", "of what changes"] = "failed" if tests.returncode else "passed"
    codes = (lowering.returncode, properties.returncode, tests.returncode)
    return verdicts, any(codes)


def lowering_verdicts(text: str) -> Verdicts:
    """A word for each kernel and target, and the hazards where there are any."""
    try:
        readings: Sequence[Mapping[str, Any]] = json.loads(text)
    except ValueError:
        return {("lowering", "report"): "failed"}
    found: Verdicts = {}
    for reading in readings:
        names = sorted({hazard["name"] for hazard in reading["hazards"]})
        word = reading["verdict"] + (f" ({', '.join(names)})" if names else "")
        found[reading["kernel"], reading["target"]] = word
    return found


def property_verdicts(summary: Mapping[str, Any]) -> Verdicts:
    """The outcome of each kernel and check."""
    return {
        (entry["kernel"], f"{entry['check']}, interpreted"): entry["outcome"]
        for entry in summary["entries"]
    }


def print_differences(results: Mapping[str, Verdicts]) -> None:
    """Every verdict that is not the same under all versions, a line a version."""
    keys = sorted({key for verdicts in results.values() for key in verdicts})
    differing = [
        key for key in keys if len({verdicts.get(key) for verdicts in results.values()}) > 1
    ]
    versions = ", ".join(results)
    print(f"\n{len(keys) - len(differing)} of {len(keys)} verdicts are the same under {versions}")
    for kernel, what in differing:
        print(f"{kernel}, {what}")
        for version, verdicts in results.items():
            print(f"  {version:8} {verdicts.get((kernel, what), 'nothing')}")


def python(
    site: Path, folder: Path, *arguments: str, capture: bool = False
) -> subprocess.CompletedProcess[str]:
    """This Python with Triton from `site`, run in `folder`; its output is kept if asked, else shown."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TRITON")},
        "PYTHONPATH": os.pathsep.join((str(site), str(CHECKOUT))),
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE if capture else None,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
