"""The words that declarations may use, each list in one place."""

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
# Families of lanes: "cuda:sm_89" is of family "cuda".
LANES = ("cuda", "interpreter")
# What the interpreter lane's sanitizer reports.
VIOLATIONS = ("assert", "bounds", "race", "unwritten")
# What other targets' code may do to a number; `harness.lowering.rules` explains and finds each.
HAZARDS = (
    "approximation",
    "contraction",
    "float atomics",
    "flushed subnormals",
    "lost specials",
    "not analysed",
    "overflow policy",
    "reduced products",
    "rounding twice",
    "ties away",
    "undefined register",
    "uninitialised store",
    "wrong conversion",
)
