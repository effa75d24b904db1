# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over a pair of pipes with its DevTools protocol.

https://chromedevtools.github.io/devtools-protocol/ describes methods and events. Messages are JSON texts that end with
a zero byte; the browser reads them from its file descriptor 3 and writes them to 4 (--remote-debugging-pipe).
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb",
    "--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage",
    # Containers rarely let a browser make its sandbox, and the one page that is opened is ours.
    "--no-sandbox",
)
KEY_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "ArrowRight": 39}


class BrowserError(Exception):
    """The browser refused a call, or what was waited for did not come."""


def find_browser() -> str | None:
    """The first Chromium of this machine; the variable CHROMIUM names another."""
    names = (os.environ["CHROMIUM"],) if os.environ.get("CHROMIUM") else NAMES
    return next((found for found in map(shutil.which, names) if found), None)


def high_pipe() -> tuple[int, int]:
    """A pipe whose ends are not 3 or 4, as the browser gets these numbers."""
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


class Browser:
    """A running browser, with a profile of its own that goes with it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._next_id = 0
        self._unread = b""
        self._replies: dict[int, dict[str, Any]] = {}
        self.events: dict[str, list[dict[str, Any]]] = {}  # by session

    def __enter__(self) -> Browser:
        self._folder = tempfile.TemporaryDirectory(prefix="hydrant-chromium-", ignore_cleanup_errors=True)
        command = [self._path, *FLAGS, f"--user-data-dir={self._folder.name}/profile", "about:blank"]
        its_input, self._input = high_pipe()
        self._output, its_output = high_pipe()
        log = f"{self._folder.name}/log"
        self._pid = os.posix_spawn(self._path, command, {**os.environ, "HOME": self._folder.name}, setpgroup=0,
                                   file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, its_input, 3),
            (os.POSIX_SPAWN_DUP2, its_output, 4),
        ])
        os.close(its_input)
        os.close(its_output)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(self._pid, 0)
        os.close(self._input)
        os.close(self._output)
        self._folder.cleanup()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result."""
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._input, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 30
        while self._next_id not in self._replies:
            if time.monotonic() > deadline:
                raise BrowserError(f"no reply to {method} in 30 seconds")
            self.read(1)
        reply = self._replies.pop(self._next_id)
        if "error" in reply:
            raise BrowserError(f"{method}: {reply['error']['message']}")
        result: dict[str, Any] = reply["result"]
        return result

    def read(self, seconds: float) -> None:
        """Takes in what the browser sends; returns after that time at the latest."""
        if not select.select([self._output], [], [], seconds)[0]:
            return
        chunk = os.read(self._output, 1 << 20)
        if not chunk:
            log = (Path(self._folder.name) / "log").read_text(encoding="utf-8", errors="replace")
            raise BrowserError(f"the browser has ended:\n{log[-2000:]}")
        *messages, self._unread = (self._unread + chunk).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._replies[message["id"]] = message
            else:
                self.events.setdefault(message.get("sessionId", ""), []).append(message)

    def open(self, url: str, width: int = 1440, height: int = 1000) -> Tab:
        """A new tab with nothing remembered, from the moment when its page has loaded."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, target, session)
        tab.resize(width, height)
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            tab.call(f"{domain}.enable")
        tab.call("Page.navigate", url=url)
        tab.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")
        return tab


class Tab:
    """One page in the browser."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        self._browser = browser
        self._target = target
        self._session = session

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def events(self, method: str) -> list[dict[str, Any]]:
        """Parameters of all events of that name so far."""
        self._browser.read(0)
        return [event["params"] for event in self._browser.events.get(self._session, []) if event["method"] == method]

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, condition: str, seconds: float = 20) -> None:
        """Waits until a JavaScript expression is true."""
        deadline = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise BrowserError(f"not within {seconds} seconds: {condition}")
            self.pause(0.02)

    def pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._browser.read(left)

    # What a reader does

    def press(self, key: str, text: str = "") -> None:
        code = KEY_CODES[key]
        fields: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code, "nativeVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **fields, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """A click on the middle of what the selector finds, with a real pointer."""
        place = self.evaluate(f"""(() => {{
          const node = document.querySelector({json.dumps(selector)});
          node.scrollIntoView({{block: 'center'}});
          const box = node.getBoundingClientRect();
          return {{x: box.x + box.width / 2, y: box.y + box.height / 2}};
        }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    # How it looks

    def resize(self, width: int, height: int, scale: float = 1, mobile: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=mobile)

    def prefer(self, scheme: str) -> None:
        """`scheme`: "light" or "dark"."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, file: Path) -> None:
        """Writes what is seen, in the format that the file's name ends with."""
        form = {".png": "png", ".webp": "webp", ".jpg": "jpeg"}[file.suffix]
        quality = {} if form == "png" else {"quality": 85}
        told = self.call("Page.captureScreenshot", format=form, **quality)
        file.write_bytes(base64.b64decode(told["data"]))
