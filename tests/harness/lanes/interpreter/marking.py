"""Violations where they belong: at the line of a kernel that says "# here"."""

import inspect


def marked(kernel):
    """The number of the line that says "# here" in a kernel's source."""
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(i for i, line in enumerate(lines) if "# here" in line)


def only(watch, kernel, kind):
    """The single violation of `watch`, which must be of `kind` and at `kernel`'s marked line."""
    (violation,) = watch.violations
    assert (violation.kind, violation.line) == (kind, marked(kernel)), violation.text
    assert violation.file == inspect.getsourcefile(kernel.fn)
    assert violation.source_line.endswith("# here")
    return violation
