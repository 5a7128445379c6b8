"""The interpreter lane: Triton's own interpreter under an overlay that computes as compiled code does."""
