"""Headless Chromium, found and driven from its command line.

    chromium = browser.needed(scratch)       a Browser, or the test is skipped
    chromium.dom(page)                       the document as the browser read it
    chromium.measured(page, SCRIPT, 400)     what a script finds in a page laid out 400 wide
    chromium.screenshot(page, target, 400, 900, dark=True)
    chromium.pdf(page, target)

The executable is EVAL_LOOP_CHROMIUM, else the first of the usual names on PATH; where there is
none, EVAL_LOOP_REQUIRE_BROWSER=1 makes that a failure in place of a skip. Every start has its
own HOME, TMPDIR and profile, and no host name resolves. A headless window is never narrower than
500 pixels, so a page is laid out in a frame of the width that is asked for.
"""

from __future__ import annotations

import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage", "--hide-scrollbars", "--force-device-scale-factor=1",
         "--host-resolver-rules=MAP * ~NOTFOUND")
TIMEOUT_SECONDS = 120
SKIPPED = ("no Chromium: install it, or set EVAL_LOOP_CHROMIUM to its absolute path, and this "
           "test runs")
FRAME = """<!doctype html><meta charset="utf-8"><style>body { margin: 0; overflow: hidden }
iframe { border: 0; display: block; margin-top: -%(top)dpx }</style>
<script>onmessage = event => {
  document.body.append(Object.assign(document.createElement("pre"), {textContent: event.data}));
}</script><iframe src="%(source)s" width="%(width)d" height="%(height)d"></iframe>
"""
PROBE = """<script>addEventListener("load", () => {
  const result = (() => {%s})();
  parent.postMessage("measured " + JSON.stringify(result), "*");
})</script></html>"""
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')


def executable() -> str | None:
    """Return the path of Chromium, or None where it is not installed."""
    return os.environ.get("EVAL_LOOP_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)),
                                                        None)


def required() -> bool:
    """Return whether a missing browser is a failure: EVAL_LOOP_REQUIRE_BROWSER is set."""
    return os.environ.get("EVAL_LOOP_REQUIRE_BROWSER", "") not in ("", "0")


class Browser:
    """Chromium with a scratch directory; every method starts it once."""

    def __init__(self, path: str, scratch) -> None:
        self.path, self.scratch = path, pathlib.Path(scratch)

    def run(self, *arguments: str) -> str:
        """Start it with a fresh home and profile; return its standard output.

        The home is not below the test's own directory: the browser puts a socket there, and the
        path of a socket has room for 107 bytes. AssertionError, with all that it said, when it
        does not end well.
        """
        with tempfile.TemporaryDirectory(prefix="") as home:
            done = subprocess.run(
                [self.path, *FLAGS, f"--user-data-dir={home}/profile", *arguments],
                env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": home,
                     "TMPDIR": home, "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_SECONDS,
                check=False)
        told = done.stdout.decode("utf-8", "replace")
        assert done.returncode == 0, told + done.stderr.decode("utf-8", "replace")
        return told

    def framed(self, page, width: int, height: int, top: int = 0) -> str:
        """Write a document that holds `page` in a frame; return its address."""
        handle, name = tempfile.mkstemp(".html", dir=self.scratch)
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(FRAME % {"source": html.escape(pathlib.Path(page).resolve().as_uri()),
                                  "width": width, "height": height, "top": top})
        return pathlib.Path(name).as_uri()

    def dom(self, page) -> str:
        """Return the document that the browser made of `page`, as markup."""
        return self.run("--dump-dom", pathlib.Path(page).resolve().as_uri())

    def measured(self, page, script: str, width: int = 1400, dark: bool = False):
        """Return what `script` (the body of a function) returns in a copy of `page`.

        The copy lacks the page's own policy, which would not let the script run.
        """
        copy = self.scratch / f"measured-{width}-{'dark' if dark else 'light'}.html"
        text = POLICY.sub("", pathlib.Path(page).read_text("utf-8"))
        copy.write_text(text.replace("</html>", PROBE % script), "utf-8")
        told = self.run("--dump-dom", "--virtual-time-budget=10000", scheme(dark),
                        self.framed(copy, width, 1000))
        found = re.search(r"<pre>measured (.*?)</pre>", told, re.DOTALL)
        assert found, "the script did not report"
        return json.loads(html.unescape(found[1]))

    def screenshot(self, page, target, width: int, height: int, dark: bool = False,
                   top: int = 0) -> bytes:
        """Write what a window of this size shows of `page`, from `top` on; return the PNG."""
        self.run(f"--window-size={max(width, 500)},{height}", f"--screenshot={target}",
                 scheme(dark), self.framed(page, width, top + height, top))
        return pathlib.Path(target).read_bytes()

    def pdf(self, page, target) -> bytes:
        """Print `page`; return the PDF."""
        self.run("--no-pdf-header-footer", f"--print-to-pdf={target}",
                 pathlib.Path(page).resolve().as_uri())
        return pathlib.Path(target).read_bytes()


def scheme(dark: bool) -> str:
    """Return the flag that sets the preferred colour scheme."""
    return f"--blink-settings=preferredColorScheme={0 if dark else 1}"


def needed(scratch) -> Browser:
    """Return a Browser with a scratch directory; skip or fail the test where there is none."""
    path = executable()
    if path is None:
        (pytest.fail if required() else pytest.skip)(SKIPPED)
    return Browser(path, scratch)
