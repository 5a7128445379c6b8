"""What Triton's compiler says of kernels that were launched where nothing is compiled; needs no GPU."""
