"""Sets up a virtual environment and runs one target; needs nothing but Python 3.11 or newer.

    python3 ci/run.py properties    the property suite: on the GPU if there is one, else interpreted
    python3 ci/run.py tests         lint, types, and the tests of the harness itself
    python3 ci/run.py nightly       what `ci/nightly.py` describes, on a machine with a GPU

The environment is `.venv` unless `--venv` names another; it is made once and brought up to date on
every call. Without a GPU the pinned torch is installed, so that an index that offers a CPU build of it
serves that one; `--index` adds a package index to look in. Further options go to the nightly run, such as
`--shard 1/4`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
CPU_TORCH = "torch==2.13.0"
# Other projects' kernels, which must run clean on the interpreter lane; without what they need elsewhere.
PUBLIC = ("einops==0.8.2", "fla-core==0.6.0", "liger-kernel==0.8.5", "moe-ops==0.1.0")
# Carries axe-core, which the report's page is held to; what else it needs drives browsers, and is not used.
AXE = "axe-playwright-python==0.1.8"
# Other projects' pytest plugins, beside which ours must not show; in a folder of their own.
PLUGINS = (
    "coverage==7.17.5",
    "pytest-asyncio==1.5.0",
    "pytest-cov==7.1.0",
    "pytest-randomly==5.1.0",
    "pytest-spec==6.1.0",
    "pytest-timeout==2.4.0",
)
STATIC = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
)
LAYERS = ("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")
# Workers that are done take what is left of others': the longest tests are not spread evenly.
PYTEST = ("pytest", "-n", "auto", "--dist", "worksteal")
TARGETS = {
    "properties": (("-m", *PYTEST, "properties/"),),
    "tests": (*(("-m", *tool) for tool in STATIC), LAYERS, ("-m", *PYTEST, "tests/")),
    "nightly": (("ci/nightly.py",),),
}


def main() -> int:
    """Prepare, run the target's commands to the end, and return the worst exit code."""
    options, further = parse()
    if sys.version_info < (3, 11):  # noqa: UP036 - runs before anything checked the version
        print(
            f"bitproof needs Python 3.11 or newer, this is {sys.version.split()[0]}",
            file=sys.stderr,
        )
        return 2
    python = prepare(options.venv, options.index)
    if further and options.target != "nightly":
        sys.exit(f"target {options.target} takes no {further[0]}")
    return max(run(python, *command, *further) for command in TARGETS[options.target])


def parse() -> tuple[argparse.Namespace, list[str]]:
    """The command line, and what is left of it for the target."""
    parser = argparse.ArgumentParser(
        description="Set up a virtual environment and run a target in it."
    )
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--venv", type=Path, default=CHECKOUT / ".venv", help="default: .venv")
    parser.add_argument("--index", help="an extra package index, for instance one with CPU builds")
    return parser.parse_known_args()


def prepare(folder: Path, index: str | None) -> Path:
    """The environment's interpreter, with this checkout and its development tools installed."""
    python = folder.resolve() / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    torch = [] if shutil.which("nvidia-smi") else [CPU_TORCH]
    extra = ["--extra-index-url", index] if index else []
    command = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *extra]
    ours = run(python, *command, *torch, "--editable", f"{CHECKOUT}[dev]")
    beside = ("--upgrade", "--target", str(folder.resolve() / "pytest-plugins"))
    if (
        ours
        or run(python, *command, "--no-deps", *PUBLIC, AXE)
        or run(python, *command, "--no-deps", *beside, *PLUGINS)
    ):
        sys.exit("installing the dependencies failed: pip's message above says which and why")
    return python


def run(python: Path, *arguments: str) -> int:
    """Run the environment's interpreter in the checkout; its exit code."""
    return subprocess.run([str(python), *arguments], cwd=CHECKOUT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
