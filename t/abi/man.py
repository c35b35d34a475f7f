# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The manual of the functions, as the generator made it from the headers: every function has a page
that names its parameters and says all that its comment has to say, mandoc and man find nothing to
complain of, and man finds the page by the name of each function. What the generator cannot put
into a page is an error of the build.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from tap import Tap, lint, run
from tree import ROOT, text

DECLARED = re.compile(r"^GLAKE_EXPORT\s[^;]*?\b(glake_\w+)\s*\(([^;]*)\);", re.M)
PARTS = ("NAME", "LIBRARY", "SYNOPSIS", "DESCRIPTION", "RETURN VALUES",
         "THREADS, BLOCKING AND DRIVER CALLS", "SEE ALSO")
PLANTED = """GLAKE_EXPORT int glake_a(int a);
"""


def exported():
    return set(re.findall(r"^\s+(glake_\w+);", text("lib/glake.map"), re.M))


def functions(path):
    """(name, parameters) of the library's functions in a header."""
    found = DECLARED.findall(path.read_text(encoding="utf-8"))
    return [(name, parameters) for name, parameters in found if name in exported()]


def headers():
    return [path for path in sorted((ROOT / "include/glake").glob("*.h")) if functions(path)]


def page_of(folder, name):
    """The file and the text of the page of a function, through the file that leads there."""
    path = folder / f"{name}.3"
    said = path.read_text(encoding="utf-8") if path.exists() else ""
    match = re.fullmatch(r"\.so man3/(\w+\.3)\n", said)
    if match and (folder / match[1]).exists():
        path = folder / match[1]
        said = path.read_text(encoding="utf-8")
    return path, said


def check_pages(tap, folder):
    absent, silent, short = [], [], []
    for path in headers():
        for name, parameters in functions(path):
            _, page = page_of(folder, name)
            if not re.search(rf"^\.Nm {name}( ,)?$", page, re.M):
                absent.append(name)
            shown = re.search(rf"^\.Fn {name} (.*)", page, re.M)
            wanted = re.findall(r"(\w+)(?:,|$)", " ".join(parameters.split()))
            words = re.findall(r"\w+", shown[1]) if shown else []
            missing = [word for word in wanted if word not in words]
            silent += [f"{name}: {word}" for word in missing]
            short += [f"{name}: no {part}" for part in PARTS if f".Sh {part}\n" not in page]
            if "-E" in page and ".Sh ERRORS" not in page and name != "glake_last_error":
                short.append(f"{name}: no ERRORS")
    tap.none(absent, "every function has a page that names it")
    tap.none(silent, "with all its parameters")
    tap.none(short, "and all its parts")


def check_list(tap, folder):
    listed = exported()
    made = {path.stem for path in folder.glob("glake_*.3")}
    tap.none(sorted(listed ^ made), f"{len(listed)} functions are exported, and have a file each")
    if not shutil.which("meson"):
        tap.skip("the pages are installed", "meson is not on PATH")
        return
    _, said = run("meson", "introspect", "--installed", folder.parents[1])
    places = [f"/man3/{name}.3" for name in listed]
    tap.none([place for place in places if f'{place}"' not in said], "the pages are installed")


def check_form(tap, folder):
    paths = sorted({page_of(folder, path.stem)[0] for path in folder.glob("glake_*.3")})
    if shutil.which("mandoc"):
        paths += [folder / name for name in ("glake.conf.5", "glake-figures.7", "glake-recipes.7")]
        tap.none(lint(paths), f"mandoc -Tlint has no complaint about {len(paths)} pages")
    else:
        tap.skip("mandoc -Tlint", "mandoc is not installed")
    code, said = run("man", "--version") if shutil.which("man") else (1, "")
    if code or not shutil.which("groff") or not said.startswith("man 2"):
        tap.skip("man --warnings", "man-db with groff is not installed")
        return
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "man3"
        shutil.copytree(folder, place, ignore=lambda _, names: [name for name in names
                        if not re.fullmatch(r"glake_\w+\.3", name)])
        rows = []
        for path in sorted(place.iterdir()):
            code, said = run("man", "-M", scratch, "--warnings", "-Tascii", "3", path.stem)
            said = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", said)
            head = said.split("\n", 1)[0]
            if code or re.search(r"warning|can't open|error:", said.split("NAME")[0]):
                rows.append(f"{path.stem}: {head}")
            if not re.search(rf"\b{path.stem}\b", said):
                rows.append(f"{path.stem}: its page does not name it")
        tap.none(rows, "man finds each function, without a warning")


def generate(scratch, listed, *more):
    folder, pages = Path(scratch) / "out", Path(scratch) / "pages"
    folder.mkdir(exist_ok=True)
    pages.write_text(listed, encoding="utf-8")
    return run(sys.executable, "-B", ROOT / "lib/man/reference.py", "write", pages,
               ROOT / "lib/man/glake.3", folder, *headers(), *more)


def check_keys(tap, page):
    """The functions that glake.conf(5) names as those that change a key are there."""
    named = set(re.findall(r"^\.Xr (glake_\w+) 3$", page.read_text(encoding="utf-8"), re.M))
    tap.ok("glake_budget_set" in named, "glake.conf(5) names what changes a key")
    tap.none(sorted(named - exported()), "and that is exported")


def check_refusals(tap):
    listed = text("lib/man/pages")
    with tempfile.TemporaryDirectory() as scratch:
        code, said = generate(scratch, listed)
        tap.ok(code == 0, "the generator makes the pages", said)
        for comment, wanted, why in (
            ("/* Does. Returns 0. Thread: any. Blocks: no. Driver calls: none. */",
             "glake_a", "a function on no page"),
            ("/* Does. Thread: any. Blocks: no. Driver calls: none. */",
             "returns", "a function that does not say what it returns"),
            ("/* Does. Returns 0; -EINVAL if so. Thread: any. Blocks: no. Driver calls: none. */",
             "if so", "an error value in a form of its own"),
            ("/* Does. Returns 0. Thread: any. Blocks: no. */",
             "Driver calls:", "a contract with a part left out"),
            ("", "no comment", "a function without a comment"),
        ):
            planted = Path(scratch) / "planted.h"
            planted.write_text(f"{comment}\n{PLANTED}", encoding="utf-8")
            more = "" if wanted == "glake_a" else "\nglake_a: planted\nfunctions glake_a\n"
            code, said = generate(scratch, listed + more, planted)
            tap.ok(code and wanted in said and "Traceback" not in said, f"refused: {why}", said)


def main(folder):
    tap = Tap()
    folder = Path(folder)
    check_list(tap, folder)
    check_pages(tap, folder)
    check_form(tap, folder)
    check_keys(tap, folder / "glake.conf.5")
    check_refusals(tap)
    tap.done()


main(sys.argv[1])
