"""What other targets' compilers make of a kernel, read on a machine that has none of them.

`compile.lower` compiles a kernel for a target in a process of its own (`worker`), for the
specialisations that drawn cases reach (`reach`), and reads the code that comes out: its instructions
and how values flow between them (`code`, from `ptx` or `llir`), what the kernel asked for (`ttir`), and
what each conversion of floats really does (`conversions`, by running the target's own code for it on the
inputs that decide). `rules` names the hazards, `report` judges them against what a spec declares.
"""
