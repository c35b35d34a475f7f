# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The pages of the manual that are written by hand: mandoc has nothing to complain of, glake(7) is
reached from the others, and what it names is there: folders, keys, functions, and the sentences
under which it tells what to do, which are those of the library.
"""

import re
import shutil

from tap import Tap, lint
from tree import ROOT, files, text

PAGE = "lib/man/glake.7"
FROM = ("lib/man/glake.3", "lib/man/glakectl.1", "lib/man/glake.conf.tail", "lib/man/glake-preload.7", "lib/man/glake-uvm.7",
        "lib/man/glake-python.3")
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
# A sentence in a source is of several literals, and has numbers in it.
JOINED = re.compile(r'"\s*(?:PRI\w+\s*)?"')


def pages():
    return [name for name in files() if re.fullmatch(r"lib/man/[\w-]+\.[1-8]", name)]


def check_form(tap):
    if not shutil.which("mandoc"):
        tap.skip("mandoc -Tlint", "mandoc is not installed")
        return
    tap.none(lint(ROOT / page for page in pages()), f"mandoc -Tlint has no complaint about {len(pages())} pages")


def sources():
    """All that the library, its doors and its tool may say."""
    code = [text(name) for name in files()
            if name.startswith(("lib/", "uvm_bridge/", "numa/")) and name.endswith((".c", ".h", ".py"))]
    return "\n".join(" ".join(LITERAL.findall(JOINED.sub("", one))) for one in code)


def parts(page):
    """What stands in quotes where symptoms are told, without what numbers stand for."""
    told = page.split(".Sh TROUBLESHOOTING\n")[1].split("\n.Sh ")[0]
    found = []
    for line in told.splitlines():
        for quoted in re.findall(r"(?:^\.|\b)Dq (.*?)(?= (?:No|Dq) |$)", line):
            for part in re.split(r"\.\.\.", quoted):
                found.append(re.sub(r"^[ ,:;]+|[ ,.:;]+$", "", part))
    return [part for part in found if len(part) > 3]


def check_sentences(tap, page):
    told, said = parts(page), re.sub(r" +", " ", sources())
    tap.ok(len(told) > 40, f"{len(told)} parts of sentences are told what to do about", *told)
    tap.none([part for part in told if part not in said], "each is one of the library")


def check_names(tap, page):
    named = re.findall(r"^\.(?:It )?(?:Pa|Pq Pa) ((?:lib|t)/[\w./-]+)", page, re.M)
    tap.ok(len(named) > 10, f"{len(named)} files and folders are named")
    tap.none([name for name in named if not (ROOT / name.rstrip(".")).exists()], "and are there")
    keys = {f"{a}.{b}" for a, b in re.findall(r"^GLK_(?:LIVE_)?KEY\((\w+), (\w+),",
                                             text("lib/base/conf_keys.h"), re.M)}
    sections = "|".join({key.split(".")[0] for key in keys})
    used = set(re.findall(rf"\b(?:{sections})\.[a-z_]+\b(?!\*)", re.sub(r"/\S+", "", page)))
    used = {key for key in used if not key.endswith("_")}
    tap.none(sorted(used - keys), f"{len(used)} keys are named, which there are")
    functions = set(re.findall(r"Xr (glake_\w+) 3", page))
    exported = set(re.findall(r"^\s+(glake_\w+);", text("lib/glake.map"), re.M))
    tap.none(sorted(functions - exported), f"and {len(functions)} functions")


def main():
    tap = Tap()
    page = text(PAGE)
    check_form(tap)
    check_sentences(tap, page)
    check_names(tap, page)
    tap.none([name for name in FROM if ".Xr glake 7" not in text(name)], "other pages lead there")
    tap.ok("`man 7 glake`" in text("README.md"), "and README does")
    tap.done()


main()
