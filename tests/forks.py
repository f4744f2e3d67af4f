"""What a forked process makes of an object that its parent has in use."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_a_fork(works: Callable[[], object]) -> bool:
    """Return whether `works()` is true in a fork of this process."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if works() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
