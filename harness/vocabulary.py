"""The checks there are, by name: what declarations may say of them, and where each is found."""

# Each is a module of `harness.checks` that declares the check of its name.
CHECKS = (
    "agreement",
    "compile_cache",
    "graphs",
    "invariances",
    "memory",
    "reproducibility",
    "streams",
)
