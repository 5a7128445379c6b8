"""Runs one thread of compiled code on many inputs at once, to see what a conversion really does."""
