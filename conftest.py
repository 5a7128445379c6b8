"""What pytest leaves out of a run over the whole checkout."""

# Links to folders that stand beside it: collected by way of them, each test would run twice.
collect_ignore = ["bitproof"]
