"""What a person reads of a run: comparisons, failures, records, the summary."""
