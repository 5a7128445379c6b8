"""A package of Triton kernels that knows nothing of bitproof outside `bitproof_specs`."""
