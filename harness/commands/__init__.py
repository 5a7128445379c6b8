"""What the commands of `bitproof` do, one module each: `run(...)` prints and returns the exit status."""
