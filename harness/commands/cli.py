"""The command line: what `bitproof` accepts. What each command does is in `harness.commands`.

Nothing heavy is imported before a command runs: help is instant, and the lane can be chosen before
anything imports triton.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bitproof.harness.commands import INTERRUPTED
from bitproof.harness.errors import BitproofError, UsageError

Command = Callable[..., int]

_spec = click.option(
    "--spec",
    "specs",
    multiple=True,
    metavar="REF",
    help="Take kernels from this module, module:NAME or .py file instead of the built-in ones.",
)
_lane = click.option(
    "--lane", help="Where kernels run: cuda or interpreter (default: by the machine)."
)
_fault = click.option("--fault", metavar="NAME", help="Plant this fault of the spec first.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_kernels = click.argument("kernels", nargs=-1, metavar="[KERNEL]...")
_file = click.Path(path_type=Path, dir_okay=False)
_rename = click.option(
    "--rename",
    "renames",
    multiple=True,
    metavar="A=B",
    help="A captured tensor called A is the spec's B.",
)
_count = click.IntRange(min=1)
_hang_limit = click.option(
    "--hang-limit", type=_count, metavar="N", help="A case with no answer within N seconds hung."
)


def _one_kernel(command: Command) -> Command:
    """What every command about one kernel takes: which one, where it is declared, its fault, its lane."""
    return click.argument("kernel")(_fault(_lane(_spec(command))))


def _add_capture_options(title: str) -> Callable[[Command], Command]:
    """What says that a command's inputs are a user's own tensors."""

    def take(command: Command) -> Command:
        params = click.option(
            "--params", metavar="JSON", help="Parameters for the captured tensors."
        )
        tensors = click.option(
            "--tensors",
            type=_file,
            metavar="FILE",
            help=f"{title} these captured tensors (safetensors).",
        )
        return tensors(params(command))

    return take


class _Commands(click.Group):
    """Turns our errors into one sentence and status 2, an interruption into status 130."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            status = super().invoke(ctx)
        except BitproofError as error:
            click.echo(f"bitproof: {error}", err=True)
            status = 2
        except KeyboardInterrupt:
            click.echo("bitproof: interrupted", err=True)
            status = INTERRUPTED
        ctx.exit(status)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="bitproof", prog_name="bitproof")
def main() -> None:
    """Property-based differential testing of Triton kernels.

    Exit status: 0 what was asked holds, 1 it falls short, 2 usage or environment error.
    """


# Each option is passed on under its own name: the commands' `run` functions say what they take.


@main.command(name="list")
@_kernels
@click.option(
    "--sweepable", is_flag=True, help="Only the names of the kernels that `sweep` can take."
)
@_spec
@_lane
@_json
def list_(kernels: tuple[str, ...], **options: Any) -> int:
    """List kernels with their checks, claims and planted faults.

    Of kernels that are named, the tensors and parameters too that `check --tensors` takes.
    """
    from bitproof.harness.commands import listing

    return listing.run(kernels, **options)


@main.command()
@click.option("--check", "chosen", multiple=True, metavar="NAME", help="Run only this check.")
@click.option("--max-examples", type=_count, metavar="N", help="Cases per check.")
@click.option("--seconds", type=_count, metavar="N", help="Begin no case of a check after N.")
@_hang_limit
@click.option("--runs", type=int, metavar="N", help="Runs of each reproducibility check.")
@click.option(
    "--ranks",
    metavar="LIST",
    help="Numbers of ranks, as 1,2,4,8, of a kernel that runs on several.",
)
@click.option(
    "--faults",
    is_flag=True,
    help="See instead whether each planted fault is caught by its check.",
)
@_add_capture_options("Check")
@_rename
@click.option(
    "--outputs",
    type=_file,
    metavar="FILE",
    help="Launch nothing: compare these captured outputs of that call (safetensors) with the oracle.",
)
@click.option(
    "--markdown",
    type=_file,
    metavar="FILE",
    help="Add the verdict and a table to this file, for a job's summary.",
)
@_kernels
@_fault
@_spec
@_lane
def check(kernels: tuple[str, ...], faults: bool, **options: Any) -> int:
    """Check KERNELs on drawn cases, or one on tensors that were captured from a real run.

    Where none is named, all of those that --spec names. A failing case is shrunk, reported and saved as a
    record that replays.
    """
    from bitproof.harness.commands import check, planted

    if not faults:
        return check.run(kernels, **options)
    taken = ("max_examples", "seconds", "hang_limit", "lane", "specs")
    for name, value in options.items():
        if value and name not in taken:
            named = {"chosen": "check"}.get(name, name)
            raise UsageError(f"--faults judges every fault by its own check: leave --{named} out")
    return planted.run(kernels, **{name: options[name] for name in taken})


@main.command()
@click.argument("function", metavar="FILE:FUNCTION")
@click.option(
    "--output", type=_file, metavar="FILE", help="Where to write (default: FILE_spec.py)."
)
def init(function: str, **options: Any) -> int:
    """Write a spec for FUNCTION, a launcher, from its signature.

    It is ready to run; comments say what a person must decide.
    """
    from bitproof.harness.commands import init

    return init.run(function, **options)


@main.command()
@click.argument("candidate", required=False)
@click.option(
    "--reference",
    metavar="REF",
    help="What is right: FILE:function, or a FILE with Model, get_inputs and get_init_inputs.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.05),
    default=5.0,
    show_default=True,
    help="How long at most, shrinking included.",
)
@click.option(
    "--operands",
    type=click.Choice(["declared", "tf32", "bf16", "fp16"]),
    default="declared",
    help="What products of matrices may read, where it is less than the reference declares.",
)
@click.option(
    "--replay", type=_file, metavar="FILE", help="Judge the case of a saved verdict again."
)
@click.option("--html", type=_file, metavar="FILE", help="Write a page (bitproof[report]).")
@_lane
@_json
def accept(candidate: str | None, **options: Any) -> int:
    """Judge CANDIDATE, somebody's kernel, against a reference in torch.

    CANDIDATE is FILE:function, or a FILE with ModelNew. Prints a page of evidence; the status is 0 where
    it is accepted, 1 where it is rejected or too little was shown.
    """
    from bitproof.harness.commands import accept

    return accept.run(candidate, **options)


@main.command()
@click.argument("file", type=_file)
@click.option("--lane", help="Where to replay: cuda or interpreter (default: the record's lane).")
@click.option(
    "--spec",
    metavar="REF",
    help="Where the kernel's spec is: a module, module:NAME or .py file (default: where the record says, "
    "if that is built in or installed).",
)
@_hang_limit
@_add_capture_options("In place of the recorded case, judge")
@_rename
def replay(file: Path, **options: Any) -> int:
    """Run the failing case saved in FILE again, or its check on tensors that were captured elsewhere."""
    from bitproof.harness.commands import replay

    return replay.run(file, **options)


@main.command()
@click.option(
    "--bits",
    metavar="LO:HI",
    default="0:0x100000000",
    help="Only the fp32 bit patterns from LO up to, not including, HI.",
)
@_one_kernel
@_json
def sweep(kernel: str, **options: Any) -> int:
    """Try KERNEL, an elementwise cast, on every fp32 bit pattern."""
    from bitproof.harness.commands import sweep

    return sweep.run(kernel, **options)


@main.command()
@click.argument("names", nargs=-1, metavar="[FUNCTION]...")
@click.option(
    "--exhaustive",
    is_flag=True,
    help="Try functions of one fp32 argument on all of 2^32, in place of a sample: for a card.",
)
@click.option("--fresh", is_flag=True, help="Measure anew what the file holds already.")
@click.option("--seconds", type=_count, metavar="N", help="Begin no row after N.")
@click.option(
    "--data",
    type=_file,
    default=Path(".bitproof/functions.json"),
    show_default=True,
    metavar="FILE",
    help="Where the numbers are kept.",
)
@click.option(
    "--add",
    type=_file,
    multiple=True,
    metavar="FILE",
    help="Measure nothing: put the rows of this file into that of --data.",
)
@click.option("--markdown", type=_file, metavar="FILE", help="Write all that FILE of --data holds.")
@_lane
def functions(names: tuple[str, ...], **options: Any) -> int:
    """Measure the largest error of each FUNCTION and conversion of Triton (default: all), in ulps.

    With the input that shows it, toward zero and away from it. Rows that the file holds for this lane and
    these versions are not measured again, so that an interrupted command goes on. The status is 1 where rows
    are left.
    """
    from bitproof.harness.commands import functions

    return functions.run(names, **options)


@main.command()
@_kernels
@click.option(
    "--targets",
    metavar="LIST",
    default="sm_80,sm_89,sm_90",
    show_default=True,
    help="Of sm_80, sm_86, sm_89, sm_90, sm_100, sm_120, gfx942, gfx950, separated by commas.",
)
@_fault
@_spec
@_json
def lowering(kernels: tuple[str, ...], **options: Any) -> int:
    """Read what the compiler makes of KERNELs (default: all) for other targets; needs no GPU.

    Says for each target whether it compiles, and which instructions endanger the numbers.
    """
    from bitproof.harness.commands import lowering

    return lowering.run(kernels, **options)


@main.command()
@click.option(
    "--output", metavar="NAME", help="Of which output (default: the one that matters most)."
)
@click.option(
    "--target", type=float, metavar="ERROR", help="Find what to keep in fp32 to meet it, as 0.008."
)
@_add_capture_options("For")
@click.option(
    "--case", type=_file, metavar="FILE", help="For the case in this record, or printed by --json."
)
@click.option("--plot", type=_file, metavar="FILE", help="Draw the same as a PNG (bitproof[plot]).")
@_one_kernel
@_json
def attribute(kernel: str, **options: Any) -> int:
    """Tell what each intermediate that KERNEL stores rounded costs in accuracy.

    With a target, also the smallest sets of intermediates to keep in fp32 for it; the status is 1 where
    the kernel falls short of it.
    """
    from bitproof.harness.commands import attribute

    return attribute.run(kernel, **options)


@main.command()
@_kernels
@click.option(
    "--sample",
    "size",
    type=_count,
    default=60,
    show_default=True,
    metavar="N",
    help="Mutants of each family of kernels, operators in turn.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Which mutants are sampled.")
@click.option(
    "--operator", "operators", multiple=True, metavar="NAME", help="Only this kind of fault."
)
@click.option("--only", multiple=True, metavar="ID", help="Only the mutant of this name.")
@click.option(
    "--limit",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Begin no case of a mutant after that.",
)
@click.option("--max-examples", type=_count, metavar="N", help="Cases per check and mutant.")
@click.option("--workers", type=_count, metavar="N", help="Processes (default: by the machine).")
@click.option("--shrink", is_flag=True, help="Look for the smallest case that kills each mutant.")
@click.option("--every-check", is_flag=True, help="Have all checks judge each mutant.")
@click.option("--sweep", is_flag=True, help="Sweep what survives in a cast (always on a card).")
@click.option("--fresh", is_flag=True, help="Judge anew what an earlier run has judged.")
@click.option("--list", "listing", is_flag=True, help="Show the sampled mutants, judge none.")
@click.option("--out", type=_file, metavar="FILE", help="Write the JSON report to FILE.")
@_lane
@_spec
@_json
def mutants(kernels: tuple[str, ...], **options: Any) -> int:
    """Generate single faults in the source of KERNELs (default: all), and see whether checks notice them.

    Equivalent mutants are set apart by proof. The status is 1 where a fault is not noticed.
    """
    from bitproof.harness.commands import mutants

    return mutants.run(kernels, **options)


@main.command()
@click.argument("paths", type=_file, nargs=-1, metavar="[FILE]...")
@click.option(
    "--before", type=_file, multiple=True, metavar="FILE", help="Tell what changed since this run."
)
@click.option("--html", type=_file, metavar="FILE", help="Write a page (bitproof[report]).")
@click.option(
    "--markdown", type=_file, metavar="FILE", help="Add Markdown to this file, for a job's summary."
)
def report(paths: tuple[Path, ...], **options: Any) -> int:
    """Show the summary of the last property run, or that in each FILE, as a table.

    Several files are those of machines that shared a run.
    """
    from bitproof.harness.commands import report

    return report.run(paths, **options)


@main.command()
@click.argument("source", metavar="RUN_OR_ZIP")
@click.option("--artifact", metavar="NAME", default="bitproof", show_default=True)
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Where it goes (default: .bitproof/pulled/NAME).",
)
def pull(source: str, **options: Any) -> int:
    """Fetch what a run on another machine left, and list what failed there.

    RUN_OR_ZIP is a zip that was downloaded, or OWNER/REPOSITORY on GitHub: then the newest artifact of that
    name is fetched, with the token in GITHUB_TOKEN.
    """
    from bitproof.harness.commands import pull

    return pull.run(source, **options)


if __name__ == "__main__":
    main(prog_name="bitproof")
