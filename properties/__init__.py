"""The property suite: one file a check, each parametrised over the specs in sorted order."""
