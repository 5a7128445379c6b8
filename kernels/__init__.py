"""Triton kernels under test; each file holds launchers and the specs that describe them."""
