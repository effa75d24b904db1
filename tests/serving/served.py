# SPDX-License-Identifier: Apache-2.0
"""`hydrant serve` for tests: from the line that says where it listens to its end."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType


class Server:
    """A running server. `with Server(program, "--queue", "0") as server:` gives one with these flags."""

    def __init__(self, program: Path, *flags: str) -> None:
        self._command = [str(program), "serve", "--port", "0", *flags]

    def __enter__(self) -> Server:
        self._folder = tempfile.TemporaryDirectory(prefix="hydrant-")
        self._log = open(Path(self._folder.name) / "log", "w+", encoding="utf-8", errors="replace")
        # What the server learns of trees stays out of the user's cache.
        environment = {**os.environ, "XDG_CACHE_HOME": self._folder.name}
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                         stderr=self._log, text=True, env=environment)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line.startswith("listening on "):
            self._end()
            raise RuntimeError(f"{' '.join(self._command)} does not listen:\n{self._read_log()}")
        self.url = line.removeprefix("listening on ").strip()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._end()
        if error is not None:
            print(f"the end of the server's log:\n{self._read_log()[-2000:]}")
        self._log.close()
        self._folder.cleanup()

    def _end(self) -> None:
        """Without grace: what a test leaves running need not finish."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def _read_log(self) -> str:
        self._log.seek(0)
        return self._log.read()
