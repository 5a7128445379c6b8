"""The numeric hazards of compiled code, and how each is found."""
