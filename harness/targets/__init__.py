"""Facts about GPUs, compilers and library versions that everything else may lean on."""
