"""What each stored intermediate of a kernel costs in accuracy, as numbers and as a chart."""
