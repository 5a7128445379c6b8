"""Mutants: generated single faults of a kernel's source, and which of them a suite notices."""
