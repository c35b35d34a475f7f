# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The examples, as a reader runs them: every line of README.md of this folder, in order, against a
staged install and on the software device. And the program of the project's README is first.c, and the
snippets of glake(7) are what these programs do: their calls stand here in the same order.

	run.py BUILD PREFIX LIBDIR BINDIR
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "t/abi"))

from tap import Tap, run, skip_all  # noqa: E402

# what the last line of each prints
SAID = {
    "first.c": ["50331648 bytes live"],
    "streams.c": ["the copy has 42\n"],
    "graph.c": ["2097152 bytes stay with the graph", "the replays left 3\n"],
    "away.c": ["first block has 1\n", "0 bytes came from the host\n", " bytes went back to the driver\n", "1 still\n", "block has 2\n"],
    "tags.c": ["8388608 bytes went\n", "the weights are 5, the cache is 6\n"],
    "lazy.c": ["25165824 bytes lie on the host\n", "25165824 bytes came to the GPU\n",
               "they are 8 and 7\n"],
    "copies.c": ["the first is 9, the last 1000000\n"],
    "exporter.c": ["imported 1048576 bytes, found 1\n", "exported 1, found 2\n"],
    "plain.cc": ["the last of 1000 is 6\n", "refused: "],
    "ranks.c": ["rank 0 of 2 on GPU 0: the sum is 3\n", "rank 1 of 2 on GPU 1: the sum is 3\n"],
    "record.c": ["events                   2 560", "peak live"],
}
STRICT = "-Wall -Wextra -Wpedantic -Werror"
SNIPPETS = [["graph.c"], ["away.c"], ["tags.c"], ["lazy.c"], ["copies.c"],
            ["exporter.c", "importer.c"]]


def read(path):
    return path.read_text(encoding="utf-8")


def calls(code):
    """Statements without comments, and without what checks them."""
    code = re.sub(r"/\*.*?\*/", "", code, flags=re.S)
    lines = [" ".join(line.split()) for line in code.split("\n")]
    return [re.sub(r"^must\((.*)\);$", r"\1;", line) for line in lines if line]


def check_snippets(tap):
    blocks = re.findall(r"```c\n(.*?)```", read(ROOT / "README.md"), re.S)
    first = read(HERE / "first.c").split("\n", 2)[2]
    tap.ok(blocks == [first], "the program of README is first.c")
    blocks = re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed", read(ROOT / "lib/man/glake.7"), re.S | re.M)
    tap.ok(len(blocks) == len(SNIPPETS), "each snippet of glake(7) has its program")
    for block, names in zip(blocks, SNIPPETS):
        left = [calls(read(HERE / name)) for name in names]
        absent = []
        for line in calls(block):
            there = next((lines for lines in left if line in lines), None)
            if there:
                del there[: there.index(line) + 1]
            elif "(" in line:  # else a declaration
                absent.append(line)
        tap.none(absent, f"the snippet is what {' and '.join(names)} does")


def examples():
    """(file, its lines) in the order of the folder's README, but for the engine: t/doors/engine.py runs that."""
    found = []
    for part in re.split(r"^(?=\*\*)", read(HERE / "README.md"), flags=re.M)[1:]:
        lines = re.findall(r"^    (.*)", part, re.M)
        found.append((re.match(r"\*\*([\w.]+)\*\*", part)[1], lines))
    return [(name, lines) for name, lines in found if name != "engine"]


def missing(lines):
    """What the first word of a line needs and the machine lacks."""
    words = [re.sub(r"^(?:\w+=\S+ )+", "", line).split()[0] for line in lines]
    return [word for word in words if not word.startswith("./") and word != "glakectl"
            and not shutil.which(word)]


def check_example(tap, name, lines, folder, env):
    lacks = missing(lines)
    if lacks:
        tap.skip(name, f"{' and '.join(lacks)} are not installed")
        return
    said = ""
    for line in lines:
        strict = re.sub(r"^(cc|c\+\+|mpicc) ", rf"\1 {STRICT} ", line)
        try:
            done = subprocess.run(["sh", "-c", strict], cwd=folder, env=env, text=True, timeout=120,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        except subprocess.TimeoutExpired as slow:
            tap.ok(False, f"{name}: {line}", slow)
            return
        said = done.stdout
        if not tap.ok(done.returncode == 0, f"{name}: {line}", said):
            return
    absent = [text for text in SAID[name] if text not in said]
    tap.ok(not absent, f"{name} says what it did", f"not there: {absent}", said)


def environment(root, prefix, libdir, bindir):
    library = root / os.path.join(prefix, libdir).lstrip("/")
    programs = root / os.path.join(prefix, bindir).lstrip("/")
    return dict(
        os.environ,
        PKG_CONFIG_LIBDIR=str(library / "pkgconfig"),
        PKG_CONFIG_SYSROOT_DIR=str(root),
        LD_LIBRARY_PATH=str(library),
        PATH=f"{programs}:{os.environ['PATH']}",
        LC_ALL="C",
        GLAKE_DRIVER_BACKEND="soft",
        # a test may be root, and have fewer processors than ranks
        OMPI_ALLOW_RUN_AS_ROOT="1",
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
        OMPI_MCA_rmaps_base_oversubscribe="1",
        PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe",
    )


def main(build, *places):
    for program in ("meson", "pkg-config", "cc"):
        if not shutil.which(program):
            skip_all(f"{program} is not on PATH")
    tap = Tap()
    check_snippets(tap)
    listed = {path.name for path in HERE.glob("*.c*")} - {"importer.c"}
    tap.none(sorted(listed ^ {name for name, _ in examples()}), "README.md has every program")
    with tempfile.TemporaryDirectory() as scratch:
        root, folder = Path(scratch) / "root", Path(scratch) / "examples"
        code, said = run("meson", "install", "-C", build, "--no-rebuild", "--destdir", root)
        tap.ok(code == 0, "meson install", said)
        shutil.copytree(HERE, folder)
        env = environment(root, *places)
        for name, lines in examples():
            check_example(tap, name, lines, folder, env)
    tap.done()


main(*sys.argv[1:])
