"""Inputs of a contract, declared once: cases, their strategy and what captured tensors must be follow."""

from bitproof.harness.inputs.axes import Axis, Size
from bitproof.harness.inputs.cases import DeclaredCase, Parts, Picks, case_of
from bitproof.harness.inputs.declaration import Declaration, find_contradictions
from bitproof.harness.inputs.declared import (
    Choice,
    Index,
    Input,
    Integer,
    Offsets,
    Parameter,
    Real,
    Tensor,
)
from bitproof.harness.inputs.drawing import BLOCKS, cases_of
from bitproof.harness.inputs.ready import matrix, packed_sequences, ragged_experts, vector

__all__ = [
    "BLOCKS",
    "Axis",
    "Choice",
    "Declaration",
    "DeclaredCase",
    "Index",
    "Input",
    "Integer",
    "Offsets",
    "Parameter",
    "Parts",
    "Picks",
    "Real",
    "Size",
    "Tensor",
    "case_of",
    "cases_of",
    "find_contradictions",
    "matrix",
    "packed_sequences",
    "ragged_experts",
    "vector",
]
