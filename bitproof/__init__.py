"""Property-based differential testing of Triton kernels."""
