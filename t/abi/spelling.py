# SPDX-License-Identifier: LGPL-2.1-or-later
"""
No word of comments, messages and texts is one that codespell knows as misspelled. It is a list of
mistakes that people make, not of words that are right, so names and terms need no list.
"""

import re
import shutil
import tempfile
from pathlib import Path

from tap import Tap, run, skip_all
from tree import ROOT, files, text

# Right here; the second column is what it is.
KNOWN = {
    "statics": "locks that are static variables",
    "nd": "the macro of mdoc(7)",
    "fro": "to and fro",
    "shwo": "and another",
}
NOT_TEXT = (".xz", ".svg", ".ptx.h")
OTHERS = {"COPYING"}


def words_of(names):
    return {word.lower() for name in names for word in re.findall(r"[A-Za-z]+", text(name))}


def spell(paths):
    return run("codespell", "--ignore-words-list", ",".join(KNOWN), *paths, cwd=ROOT)


def main():
    if not shutil.which("codespell"):
        skip_all("codespell is not installed, of Debian's package codespell")
    tap = Tap()
    here = "t/abi/spelling.py"
    names = [name for name in files()
             if not name.endswith(NOT_TEXT) and not name.startswith("t/data/") and name not in OTHERS]
    code, said = spell(names)
    tap.ok(code == 0, f"{len(names)} files have no misspelled word", said)
    used = words_of(name for name in names if name != here)
    tap.none(sorted(set(KNOWN) - used), "each word that is let pass is in the tree")
    with tempfile.TemporaryDirectory() as folder:
        planted = Path(folder) / "planted.c"
        planted.write_text("/* A sepe" + "rate thing. */\n", encoding="utf-8")
        code, said = spell([planted])
        tap.ok(code != 0 and "planted.c:1" in said, "a planted one is found", said)
    tap.done()


main()
