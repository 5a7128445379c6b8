"""The wheel of this checkout installed into a folder, and pytest run beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDERS = ("harness", "kernels", "oracles", "properties")
MODULES = ("__init__", "__main__", "options", "plugin", "suite")
# Other projects' pytest plugins, which are never installed where ours is developed.
PLUGINS = Path(sys.prefix) / "pytest-plugins"


def copy_sources(to: Path) -> None:
    """The files that a wheel is built from, without what a build would leave in the checkout."""
    (to / "bitproof").mkdir(parents=True)
    for part in FOLDERS:
        (to / "bitproof" / part).symlink_to(f"../{part}")
    parts = (*FOLDERS, *(f"bitproof/{name}.py" for name in MODULES))
    for name in (*parts, "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        source = CHECKOUT / name
        for file in [source] if source.is_file() else sorted(source.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                target = to / file.relative_to(CHECKOUT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())


def build(source: Path, to: Path, kind: str = "--wheel") -> subprocess.CompletedProcess[str]:
    """Build a distribution with what is installed here, without the network."""
    command = [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", str(to)]
    return subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)


def install(distribution: Path, to: Path) -> None:
    """Unpack a distribution and nothing that it needs into a folder for PYTHONPATH."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(to), str(distribution)], check=True, capture_output=True)


def run_pytest(
    site: Path, folder: Path, *arguments: str, beside: tuple[Path, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """pytest in `folder`, with `site` and the folders `beside` it on the import path."""
    paths = os.pathsep.join(str(path) for path in (site, *beside))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths, "BITPROOF_LANE": "interpreter"},
        capture_output=True,
        text=True,
        check=False,
    )
