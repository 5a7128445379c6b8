"""Exact and float64 answers: number formats, roundings and mathematics; never runs Triton."""
