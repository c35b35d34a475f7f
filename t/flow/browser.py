# SPDX-License-Identifier: LGPL-2.1-or-later
"""
A browser without a window, for tests of pages: Chromium, spoken to by its DevTools protocol over
two pipes, one JSON a message with a NUL behind.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-shell")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
           "--hide-scrollbars", "--no-first-run", "--disable-extensions",
           "--disable-background-networking", "--disable-component-update",
           "--remote-debugging-pipe")


def find():
    """The program, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page of a browser. What it logs, throws and fetches is in `events`."""

    def __init__(self, program, patience=120):
        self.patience, self.rest, self.events, self.last = patience, b"", [], 0
        self.session, self.home = None, tempfile.mkdtemp()
        to_child, self.to = os.pipe()
        self.back, from_child = os.pipe()
        # Chromium reads descriptor 3 and writes 4.
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3<&{to_child} 4>&{from_child}', "sh", program, *OPTIONS,
             f"--user-data-dir={self.home}", "about:blank"],
            pass_fds=(to_child, from_child), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=dict(os.environ, HOME=self.home))
        os.close(to_child)
        os.close(from_child)
        try:
            targets = self.ask("Target.getTargets")["targetInfos"]
            page = next(target["targetId"] for target in targets if target["type"] == "page")
            self.session = self.ask("Target.attachToTarget", targetId=page,
                                    flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.ask(f"{domain}.enable")
        except (OSError, StopIteration):
            self.close()
            raise

    def message(self):
        """The next message of the browser."""
        end = time.monotonic() + self.patience  # real time
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.back], [], [], max(0, end - time.monotonic()))  # real time
            more = os.read(self.back, 1 << 20) if ready else b""
            if not more:
                raise OSError("the browser says nothing more")
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, **params):
        """A call of the protocol, and its answer."""
        self.last += 1
        call = {"id": self.last, "method": method, "params": params}
        if self.session:
            call["sessionId"] = self.session
        data = json.dumps(call).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            said = self.message()
            if said.get("id") == self.last:
                if "error" in said:
                    raise OSError(f"{method}: {said['error']['message']}")
                return said["result"]
            self.events.append(said)

    def open(self, address):
        """Goes to a page, and waits until it is there."""
        self.ask("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message())

    def run(self, script):
        """The value of an expression in the page."""
        said = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in said:
            raise OSError(said["exceptionDetails"].get("text", "an exception"))
        return said["result"].get("value")

    def heard(self, *methods):
        """What happened of these kinds."""
        return [event["params"] for event in self.events if event.get("method") in methods]

    def picture(self, path):
        """All of the page as a PNG."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        os.close(self.to)
        os.close(self.back)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)
