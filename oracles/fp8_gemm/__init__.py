"""Block-scaled fp8 products and a mixture of experts: answers, and how far a right kernel may be off."""
