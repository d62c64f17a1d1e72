"""Commands in a terminal of their own."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time


def in_terminal(*arguments: str, seconds: float = 60) -> str:
    """All that a command writes to the terminal it runs in."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, *arguments])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    shown, end = b"", time.monotonic() + seconds
    while time.monotonic() < end and select.select([terminal], [], [], seconds)[0]:
        try:
            shown += os.read(terminal, 65536)
        except OSError:
            break
    os.waitpid(child, 0)
    os.close(terminal)
    return shown.decode()
