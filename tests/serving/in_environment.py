#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a Python script in a virtual environment that has the packages of requirements.txt.

The environment is made where it is missing, from PyPI. Where that cannot be done the exit code is 77, which ctest
counts as skipped.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
SKIPPED = 77


def run(what: str, command: list[str | Path]) -> None:
    """Runs a command; where it fails, ends this script as skipped with the last line that the command wrote."""
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, timeout=100, check=False)
        problem = "" if result.returncode == 0 else (result.stdout.strip().splitlines() or ["no word of it"])[-1]
    except subprocess.TimeoutExpired:
        problem = "it took more than 100 seconds"
    if problem:
        print(f"skipped: {what} failed: {problem}")
        sys.exit(SKIPPED)


def make(folder: Path) -> None:
    """Makes the environment, unless it is there and complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests may run at the same time
        stamp = folder / "complete"
        wanted = REQUIREMENTS.read_text(encoding="utf-8")
        if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
            return
        run("'python3 -m venv'", [sys.executable, "-m", "venv", "--clear", folder])
        run("'pip install' from PyPI", [folder / "bin/python", "-m", "pip", "install", "--quiet", "--retries", "1",
                                        "--timeout", "15", "--disable-pip-version-check", "--only-binary", ":all:",
                                        "--requirement", REQUIREMENTS])
        stamp.write_text(wanted, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the environment is, or is to be made")
    parser.add_argument("script", help="the script to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    options = parser.parse_args()
    make(options.folder.absolute())
    python = options.folder.absolute() / "bin/python"
    os.execv(python, [str(python), options.script, *options.arguments])


if __name__ == "__main__":
    main()
