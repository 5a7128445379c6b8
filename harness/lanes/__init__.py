"""How a kernel is run: the only package that knows about devices, streams and the interpreter."""
