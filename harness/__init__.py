"""Property-based differential testing for Triton kernels."""
