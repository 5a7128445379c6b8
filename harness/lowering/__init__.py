"""What other targets' compilers make of a kernel, read on a machine that has none of them.

`compile.read_one` has a kernel compiled for a target in a process of its own (`worker`), for the
specialisations that drawn cases reach (`specialisations`), and reads the code that comes out (`readers`): its
instructions and how values flow between them, from PTX or LLVM IR, and what the kernel asked for, from
Triton's own IR. What each conversion of floats really does (`conversions`) the target's own code for it says,
run on the inputs that decide (`probe`, `emulator`). `rules` names the hazards, `report` judges them against
what a spec declares.
"""
