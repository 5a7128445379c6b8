"""A torch function as the reference: its exact answer, and how far it may be from it itself."""

from bitproof.harness.references.bound import ReferenceBound, SampledBound, bound_on, make_bound
from bitproof.harness.references.calling import Reference
from bitproof.harness.references.launching import run_like
from bitproof.harness.references.looseness import find_looseness
from bitproof.harness.references.oracle import declared_types, make_oracle
from bitproof.harness.references.sampling import Operands

__all__ = [
    "Operands",
    "Reference",
    "ReferenceBound",
    "SampledBound",
    "bound_on",
    "declared_types",
    "find_looseness",
    "make_bound",
    "make_oracle",
    "run_like",
]
