"""The gated delta rule in float64: recurrence, chunks, adjoints, gates, and what storage makes of it."""
