#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The page of glakectl's report in a browser, from a file: its chart has the data, the pointer and the
slider tell what was live and reserved, nothing is fetched and nothing complained of, and it can be
read in the light, in the dark, on a narrow screen and on paper. Where GLAKE_TEST_PICTURES names a
folder the pictures stay there.
"""
import os
import re
import struct
import tempfile
from pathlib import Path

from browser import Browser, find
from page import has_matplotlib
from tap import DATA, done, equal, has, ok, skip, start, tool

CONTRAST = """
(() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[0-9.]+/g).map((c) => c / 255)
      .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  /* the ground below an element, of all that lies over each other there */
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement)
      layers.push(getComputedStyle(at).backgroundColor.match(/[0-9.]+/g).map(Number));
    let under = [255, 255, 255];
    for (const [r, g, b, a = 1] of layers.reverse())
      under = [r, g, b].map((c, i) => c * a + under[i] * (1 - a));
    return `rgb(${under})`;
  };
  let least = 21, where = "";
  for (const element of document.querySelectorAll("main *")) {
    if (![...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
      continue;
    const pair = [getComputedStyle(element).color, ground(element)].map(light);
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (ratio < least)
      [least, where] = [ratio, element.tagName + "." + element.className];
  }
  return [least, where];
})()
"""
MIB, HEADER = 1 << 20, "Thread,Time,Action,Pointer,Size,Stream\n"
GROUND = "getComputedStyle(document.body).backgroundColor"
STEPS = (HEADER + "".join(f"0,{second * 1000000},allocate,0x{second + 1}000,{64 * MIB},0\n"
                          for second in range(10)) + f"0,10000000,free,0x10000,{64 * MIB},0\n")


def size_of(path):
    with open(path, "rb") as file:
        head = file.read(24)
    return struct.unpack(">II", head[16:])


def look(browser, folder, name, width, dark):
    """One look at the page: no wider than the window, its text easy to tell from its ground."""
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900,
                deviceScaleFactor=1, mobile=width < 600)
    browser.ask("Emulation.setEmulatedMedia", media="", features=[
        {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
    wide = browser.run("document.documentElement.scrollWidth")
    ok(wide <= width, f"{name}: the page is no wider than {width}", wide)
    least, where = browser.run(CONTRAST)
    ok(least >= 4.5, f"{name}: text stands out from its ground, {least:.1f} at least", where)
    path = os.path.join(folder, f"{name}.png")
    browser.picture(path)
    shown = size_of(path)
    ok(shown[0] == width and shown[1] > 1500, f"{name}: a picture of it", shown)
    return browser.run(GROUND)


def check_looks(browser, folder):
    grounds = [look(browser, folder, "light", 1100, False), look(browser, folder, "dark", 1100, True)]
    equal(grounds, ["rgb(255, 255, 255)", "rgb(13, 17, 23)"], "light and dark have their ground")
    look(browser, folder, "narrow", 400, False)
    look(browser, folder, "narrow-dark", 400, True)
    has(browser.run("getComputedStyle(document.getElementById('moments')).display"), "flex",
        "the slider is there")
    browser.ask("Emulation.setEmulatedMedia", media="print", features=[
        {"name": "prefers-color-scheme", "value": "dark"}])
    equal(browser.run("getComputedStyle(document.getElementById('moments')).display"), "none",
          "not on paper")
    equal(browser.run(GROUND), "rgb(255, 255, 255)", "which stays white in the dark")
    try:
        paper = browser.ask("Page.printToPDF")["data"]
    except OSError as e:
        if "wasn't found" not in str(e):
            raise
        skip("a page that is printed", "this browser prints none")
    else:
        ok(len(paper) > 10000, "and is printed")


def check_chart(browser):
    """The steps that were asked for, in the curve and under the pointer."""
    drawn = browser.run("document.querySelector('#timeline-broad-live path').getAttribute('d')")
    heights = [float(y) for _, y in re.findall(r"([\d.]+) ([\d.]+)", drawn)]
    heights = [y for y, before in zip(heights, [None, *heights]) if y != before]
    ok(len(heights) == 11 and heights[:10] == sorted(heights[:10], reverse=True),
       "the curve rises ten times", drawn)
    browser.run("document.getElementById('timeline').scrollIntoView()")
    box = browser.run("(({x, y, width, height}) => [x, y, width, height])("
                      "document.querySelector('#timeline .broad .over').getBoundingClientRect())")
    ok(box[2] > 500 and box[3] > 200, "the chart has room", box)
    drawn = browser.run("(({width, height}) => [width, height])("
                        "document.querySelector('#timeline-broad-live path').getBoundingClientRect())")
    ok(drawn[0] > 0.98 * box[2] and drawn[1] > 0.7 * box[3], "and the curve fills it", drawn)
    said = "document.getElementById('said').value.replaceAll('\\u00a0', ' ')"
    has(browser.run(said), "live 640 MiB", "it begins at the peak")
    for at, seconds, live in ((0.25, "2.50 s", "192 MiB"), (0.85, "8.50 s", "576 MiB")):
        browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + at * box[2],
                    y=box[1] + box[3] / 2)
        text = browser.run(said)
        has(text, f": live {live}, reserved ", f"under the pointer: {live} were live")
        ok(abs(float(text.split()[0]) - float(seconds.split()[0])) < 0.03, f"at {seconds}", text)
    ok(not browser.run("document.querySelector('.cursor').hidden"), "a line is at the pointer")
    browser.run("document.getElementById('moment').focus()")
    browser.run("document.getElementById('moment').value = 3; "
                "document.getElementById('moment').dispatchEvent(new Event('input'))")
    text = browser.run(said)
    has(text, "3.00 s: live 256 MiB", "the slider tells of the fourth event")
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight",
                    windowsVirtualKeyCode=39)
    has(browser.run(said), "4.00 s: live 320 MiB", "and a key of the next one")
    equal(browser.run("document.getElementById('moment').getAttribute('aria-valuetext')"
                      ".replaceAll('\\u00a0', ' ')"), browser.run(said), "readers of screens too")


def check_quiet(browser, address):
    """Nothing was fetched but the page, and nothing was wrong with it."""
    asked = [event["request"]["url"] for event in browser.heard("Network.requestWillBeSent")]
    equal(asked, [address], "one file was read, and nothing else asked for")
    said = browser.heard("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
    equal(said, [], "nothing on the console")


def visit(program, folder, trace, check, *options):
    page = os.path.join(folder, "page.html")
    run = tool("report", "-q", "-o", page, *options, trace)
    if not ok(run.returncode == 0, f"a page of {ascii(os.path.basename(trace))}", run.stderr):
        return
    browser = Browser(program)
    try:
        browser.open(Path(page).as_uri())
        check(browser)
        check_quiet(browser, Path(page).as_uri())
    finally:
        browser.close()


def check_hostile(browser):
    equal(browser.run("[document.images.length, document.scripts.length, typeof stolen]"),
          [0, 2, "undefined"], "a name that is a script stays a name")
    has(browser.run("document.querySelector('h1').textContent"), "<script>", "and is shown")


def main():
    start()
    program = find()
    if not program or not has_matplotlib():
        skip("the report in a browser", "no Chromium, or no matplotlib: Debian's packages chromium, python3-matplotlib")
        done()
    with tempfile.TemporaryDirectory() as folder:
        steps = os.path.join(folder, "steps.csv")
        # a folder's separator cannot stand in a name; '<' and '&' can
        hostile = os.path.join(folder, "<script>stolen=1<&#47;script><img src=x onerror=stolen=1>")
        for path in (steps, hostile):
            with open(path, "w", encoding="ascii") as file:
                file.write(STEPS)
        pictures = os.environ.get("GLAKE_TEST_PICTURES", folder)
        visit(program, folder, steps, check_chart, "-f", "no")
        visit(program, folder, hostile, check_hostile, "-f", "no", "--recorded", "</script><img src=x>=2GiB")
        visit(program, folder, f"{DATA}/fsdp1.csv.xz", lambda b: check_looks(b, pictures),
              "--recorded", "default=71052MiB", "--recorded", "expandable_segments=55668MiB")
    done()


main()
