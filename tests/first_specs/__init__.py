"""Five kernels as a stranger writes them, each with its spec in fewer than fifteen lines."""
