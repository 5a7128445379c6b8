"""Hypothesis strategies for the inputs that kernels meet."""
