"""Whether a kernel of which only its file is known may be accepted, judged against a reference."""
