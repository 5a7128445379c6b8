"""Stops a build from a checkout whose links are gone, which would make an almost empty distribution."""

import sys
from pathlib import Path

from setuptools import setup

PARTS = ("harness", "kernels", "oracles", "properties")

for part in PARTS:
    if not (Path(__file__).parent / "bitproof" / part / "__init__.py").is_file():
        sys.exit(
            f"bitproof/{part} is no folder, so that nothing of it could be installed: it is a symbolic link, "
            "which some archives and checkouts lose; clone the repository with git where links are possible"
        )

setup()
