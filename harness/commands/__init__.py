"""What the commands of `bitproof` do, one module each: `run(...)` prints and returns the exit status."""

# As a shell gives for a process that ended on Ctrl-C.
INTERRUPTED = 130
