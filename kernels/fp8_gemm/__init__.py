"""Block-scaled fp8 products under test, and a mixture of experts made of them."""
