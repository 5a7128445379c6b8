"""Kernels under test: where their specs are found, and how a fault is planted in one."""
