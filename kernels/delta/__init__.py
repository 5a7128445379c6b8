"""The gated delta rule: GDN2 and KDA, by chunks and token by token, forward and backward."""
