"""Memory of an interpreted launch: what is in bounds, written, raced for, and how that is reported."""
