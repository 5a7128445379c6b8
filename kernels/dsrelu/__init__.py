"""The backward pass of a grouped GEMM with the activation prob * relu(C)^2 over ragged experts."""
