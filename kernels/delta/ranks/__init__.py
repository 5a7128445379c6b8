"""Context parallelism: the gated delta rule by chunks, its sequences cut over several ranks."""
