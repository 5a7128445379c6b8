"""Numbers as sm_90 computes them: conversions, arithmetic, products, reductions, on arrays."""
