"""`python -m bitproof`: the command line."""

from bitproof.harness.commands.cli import main

main(prog_name="bitproof")
