"""Notices a program that waits for another one, which never comes while programs run one by one."""

from __future__ import annotations

from bitproof.harness.errors import Unsupported

# A waiting loop reads few addresses over and over, and changes nothing.
_ADDRESSES = 4
_PATIENCE = 1000


class Patience:
    """Counts the reads of one program that stay on a few addresses while memory does not change."""

    def __init__(self) -> None:
        """Nothing read yet."""
        self._recent: set[int] = set()
        self._reads = 0

    def reset(self) -> None:
        """Memory changed, or another program began."""
        self._recent.clear()
        self._reads = 0

    def read(self, address: int) -> None:
        """Count a read that starts at `address`; raises Unsupported when it can only be a wait."""
        if address not in self._recent:
            if len(self._recent) >= _ADDRESSES:
                self.reset()
            self._recent.add(address)
        self._reads += 1
        if self._reads > _PATIENCE:
            self.never()

    def never(self) -> None:
        """Raise Unsupported: what the program waits for will not happen."""
        raise Unsupported(
            "a program waits for another one, but the interpreter runs programs one after another: "
            "test this kernel on lane cuda"
        )
