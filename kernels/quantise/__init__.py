"""Casts and quantisers: fp32, bf16 and fp16 to fp8, int8 and four-bit floats with their scales."""
