"""Child processes: `child` starts one and asks it, `serve` is the loop that runs in it."""
