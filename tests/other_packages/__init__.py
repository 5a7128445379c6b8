"""Kernels of public packages, each held to a contract in a few lines."""
