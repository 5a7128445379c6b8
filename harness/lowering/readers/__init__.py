"""Compilers' output as data: PTX, LLVM IR, SASS, AMD's machine code, Triton's own IR."""
