# SPDX-License-Identifier: LGPL-2.1-or-later
"""
libglake.a, as -Ddefault_library=both installs it: README's example linked with what pkg-config
says, with the library alone inside and with everything; and no name of the library that another
one could have.

    static.py LIBRARY VERSION_HEADER
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from tap import Tap, run, skip_all
from tree import ROOT, text

STRICT = ["-std=c11", "-Wall", "-Werror"]


def strangers(said):
    """Names in what nm says that any other library might have."""
    rows = [line.split() for line in said.splitlines()]
    names = {row[2] for row in rows if len(row) == 3 and len(row[1]) == 1}
    # sys/sdt.h has the linker keep one of these for all who have probes
    ours = ("glk_", "glake_", "_.stapsdt.")
    return names, sorted(name for name in names if not name.startswith(ours))


def names(tap, library):
    code, said = run("nm", "-g", "--defined-only", library)
    if not tap.ok(code == 0, "nm reads libglake.a", said):
        return
    every, odd = strangers(said)
    tap.none(odd, f"all {len(every)} names begin with glk_ or glake_")
    listed = set(re.findall(r"^\s+(\w+);", text("lib/glake.map"), re.M))
    tap.none(sorted(listed - every), "every function of libglake.so is there")
    planted = "x.o:\n0000000000000000 T list_add\n0000000000000010 T glk_lock\n"
    tap.ok(strangers(planted)[1] == ["list_add"], "another name is found")
    code, said = run("readelf", "-sW", library)
    shown = set(re.findall(r" GLOBAL DEFAULT +\d+ (\w+)$", said, re.M))
    tap.none(sorted(shown ^ listed), "and those alone leave what it is linked into")


def flags(tap, scratch, library, version):
    """What pkg-config says for static programs, of the installed glake.pc over the built files."""
    build, include = scratch / "both", scratch / "include" / "glake"
    code, said = run("meson", "setup", build, ROOT, "-Ddefault_library=both", "-Dtests=false")
    if not tap.ok(code == 0, "a build with the static library is set up", said):
        return None
    shutil.copytree(ROOT / "include" / "glake", include)
    shutil.copy(version, include)
    path = [str(build / "meson-private"), os.environ.get("PKG_CONFIG_PATH", "")]
    code, said = run("pkg-config", f"--define-variable=prefix={scratch}",
                     f"--define-variable=libdir={os.path.dirname(library)}", "--static", "--cflags", "--libs",
                     "glake", env=dict(os.environ, PKG_CONFIG_PATH=":".join(filter(None, path))))
    tap.ok(code == 0 and "-lglake" in said, "pkg-config --static knows glake", said)
    return said.split()


def link_and_run(tap, what, command, program):
    code, said = run(*command)
    if not tap.ok(code == 0, f"README's example, {what}, is linked", said):
        return
    code, said = run(program, env=dict(os.environ, GLAKE_DRIVER_BACKEND="soft"))
    tap.ok(code == 0 and "bytes live" in said, "and runs", said)
    code, said = run("readelf", "-dW", program)
    tap.ok(code == 0 and "libglake" not in said, "and needs no libglake.so", said)


def absent_archives(words):
    """Libraries that pkg-config names and that cannot be linked in here."""
    found = []
    for word in words:
        if word.startswith("-l") and word != "-lglake":
            archive = f"lib{word[2:]}.a"
            if run("cc", f"-print-file-name={archive}")[1].strip() == archive:
                found.append(archive)
    return found


def main(library, version):
    for program in ("meson", "pkg-config", "cc", "nm", "readelf"):
        if not shutil.which(program):
            skip_all(f"{program} is not on PATH")
    tap = Tap()
    names(tap, library)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        words = flags(tap, scratch, library, version)
        source, program = scratch / "example.c", scratch / "example"
        source.write_text(re.search(r"```c\n(.*?)```", text("README.md"), re.S)[1],
                          encoding="utf-8")
        if words:
            alone = ["-l:libglake.a" if word == "-lglake" else word for word in words]
            link_and_run(tap, "with libglake.a", ["cc", *STRICT, source, "-o", program, *alone],
                         program)
            absent = absent_archives(words)
            if absent:
                tap.skip("a program that is static altogether", f"there is no {absent[0]} here")
            else:
                link_and_run(tap, "static altogether", ["cc", "-static", *STRICT, source, "-o",
                                                        program, *words], program)
    tap.done()


main(sys.argv[1], sys.argv[2])
