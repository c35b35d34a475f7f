# SPDX-License-Identifier: LGPL-2.1-or-later
"""
A page of the manual from Markdown, which a forge shows as it is: `page.py FILE.md` writes mdoc(7). Of Markdown it knows
what such pages have: headings, paragraphs, fenced blocks, `code`, **words** and *words*, and name(7) for other pages.
"""

import re
import sys
import textwrap

FONTS = (("`([^`]+)`", "\\\\fB\\1\\\\fP"), (r"\*\*([^*]+)\*\*", "\\\\fB\\1\\\\fP"), (r"\*([^*]+)\*", "\\\\fI\\1\\\\fP"))


def start(text):
    return "\\&" + text if text[:1] in (".", "'") else text


def escape(text):
    return start(text.replace("\\", "\\e").replace("-", "\\-"))


def inline(text):
    text = escape(text)
    for pattern, font in FONTS:
        text = re.sub(pattern, font, text)
    return text


def fill(text):
    """Lines that are not too long for mandoc."""
    return [start(line) for line in textwrap.wrap(text, 78, break_long_words=False, break_on_hyphens=False)]


def paragraph(lines):
    """A sentence a line, and a page that is named as a reference."""
    text = inline(" ".join(lines))
    for row in re.sub(r"(?<=[A-Za-z0-9)%])([.?](?:\\fP)?) (?=[A-Z\\])", r"\1\n", text).split("\n"):
        while match := re.search(r"\b([a-z][\w\\-]*)\(([1-8])\)([.,;:]*) ?", row):
            before = row[:match.start()].rstrip()
            yield from fill(before)
            yield f".Xr {match[1]} {match[2]}" + (f" {match[3]}" if match[3] else "")
            row = row[match.end():]
        yield from fill(row)


def page(text, date):
    lines = text.splitlines()
    name, section, about = re.match(r"# ([\w-]+)\((\d)\): (.*)", lines[1]).groups()
    yield from (".\\\" SPDX-License-" + "Identifier: LGPL-2.1-or-later", f".Dd {date}", f".Dt {name.upper()} {section}", ".Os",
                ".Sh NAME", f".Nm {name}", f".Nd {about}", ".Sh DESCRIPTION")
    held, code, after, items = [], False, True, False
    for line in [*lines[2:], ""]:
        heading = re.match(r"(##+) (.*)", line)
        item = not code and line.startswith("- ")
        if line.startswith("```") or heading or item or code or not line:
            if held:
                yield from [".Pp"] * (not after)
                yield from paragraph(held)
                held, after = [], False
            if items and not item and not code:
                yield ".El"
                items = False
        if item:
            yield from [".Bl -bullet"] * (not items) + [".It"]
            held, items, after = [line[2:]], True, True
            continue
        if line.startswith("```"):
            yield ".Ed" if code else ".Bd -literal -offset indent"
            code = not code
        elif code:
            yield escape(line)
        elif heading:
            yield (f".Sh {heading[2].upper()}" if heading[1] == "##" else f".Ss {heading[2]}")
            after = True
        elif line:
            held.append(line.strip())
    yield from (".Sh SEE ALSO", ".Xr glakectl 1 ,", ".Xr glake-cpp 3 ,", ".Xr glake-python 3 ,", ".Xr glake.conf 5 ,",
                ".Xr glake 7 ,", ".Xr glake-preload 7")


with open(sys.argv[1], encoding="utf-8") as file:
    print("\n".join(page(file.read(), sys.argv[2])))
