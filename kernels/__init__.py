"""Triton kernels under test: a folder a family, with the specs that describe them."""
