"""How failing cases are found: what is drawn, how much of it, and in which process it is judged."""
