"""The errors this project raises on purpose: one sentence each, naming the thing and the remedy."""


class BitproofError(Exception):
    """Base of every error a user can cause; the command line prints its text and exits with 2."""


class UsageError(BitproofError):
    """What was asked for does not exist or does not fit: a name, an option, a file, a shape."""


class EnvironmentUnfit(BitproofError):
    """This machine or process cannot do what was asked: no GPU, an old triton, a clash of packages."""


class SpecError(BitproofError):
    """A kernel's specification contradicts itself or leaves something out."""


class Refused(BitproofError):
    """A kernel's launcher rejected its inputs with its documented error."""


class Unsupported(BitproofError):
    """The present lane cannot run this kernel, though some target's compiler takes it; the text says why."""


class Uncompilable(BitproofError):
    """No target's compiler takes what a kernel does; the text says what to write instead."""
