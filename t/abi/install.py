# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What `meson install` puts on a system: library, headers, pkg-config file, tool, manual pages
and the configuration. And that README tells the truth about it: its C example builds against
that and runs, the commands and the configuration keys it shows are there.
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from tap import Tap, run, skip_all
from tree import ROOT, text


def example():
    """The first C block of README."""
    return re.search(r"```c\n(.*?)```", text("README.md"), re.S)[1]


def cpp_example():
    """The program of the manual page for C++."""
    page = text("lib/man/glake-cpp.3").split(".Sh EXAMPLES")[1]
    return re.search(r"\.Bd -literal\n(.*?)\.Ed", page, re.S)[1].replace("\\e", "\\")


def build_and_run(tap, root, folders, scratch):
    """Compiles README's example as a user of the installed files would."""
    pc = root / folders["libdir"] / "pkgconfig"
    env = dict(os.environ, PKG_CONFIG_LIBDIR=str(pc), PKG_CONFIG_SYSROOT_DIR=str(root))
    env["LD_LIBRARY_PATH"] = str(root / folders["libdir"])
    env["GLAKE_DRIVER_BACKEND"] = "soft"
    code, flags = run("pkg-config", "--cflags", "--libs", "glake", env=env)
    if not tap.ok(code == 0, "pkg-config knows glake", flags):
        return
    source, program = Path(scratch) / "example.c", Path(scratch) / "example"
    source.write_text(example(), encoding="utf-8")
    code, said = run("cc", "-std=c11", "-Wall", "-Werror", source, "-o", program, *flags.split())
    if not tap.ok(code == 0, "README's example compiles", said):
        return
    code, said = run(program, env=env)
    tap.ok(code == 0, "and runs", said)
    if not shutil.which("c++"):
        tap.skip("the example of glake-cpp(3)", "no compiler for C++")
        return
    source = source.with_suffix(".cc")
    source.write_text(cpp_example(), encoding="utf-8")
    code, said = run("c++", "-std=c++17", "-Wall", "-Werror", source, "-o", program, *flags.split())
    if not tap.ok(code == 0, "the example of glake-cpp(3) compiles", said):
        return
    code, said = run(program, env=env)
    tap.ok(code == 0 and said == f"{48 << 20} bytes live\n", "and runs", said)


def commands_and_keys(tap, root, folders):
    """What README says of the tool and of its configuration."""
    env = dict(os.environ, LD_LIBRARY_PATH=str(root / folders["libdir"]))
    tool = root / folders["bindir"] / "glakectl"
    code, said = run(tool, "--version", env=env)
    tap.ok(code == 0, "the installed tool starts", said)
    shown = re.findall(r"^    glakectl ([a-z]+(?: [a-z]+)?)", text("README.md"), re.M)
    for command in shown:
        code, said = run(tool, *command.split(), "--help", env=env)
        tap.ok(code == 0, f"README: glakectl {command}", said)
    shipped = (root / folders["sysconfdir"] / "glake.conf").read_text(encoding="utf-8")
    keys = re.findall(r"^    ([a-z]+)\.([a-z_]+) = (\S+)", text("README.md"), re.M)
    for section, key, default in keys:
        part = shipped.split(f"[{section}]")[-1].split("\n[")[0]
        tap.ok(f";{key} = {default}\n" in part, f"README: {section}.{key} = {default}", part)
    tap.ok(shown and keys, "README shows commands and keys")


def main(build, prefix, *places):
    folders = {}
    for place in places:
        name, folder = place.split("=")
        folders[name] = os.path.join(prefix, folder).lstrip("/")
    for program in ("meson", "pkg-config", "cc"):
        if not shutil.which(program):
            skip_all(f"{program} is not on PATH")
    tap = Tap()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        code, said = run("meson", "install", "-C", build, "--no-rebuild", "--destdir", root)
        tap.ok(code == 0, "meson install", said)
        wanted = {
            "libdir": ["libglake.so", "libglake.so.0", "libglake-torch.so.0", "pkgconfig/glake.pc"],
            "includedir": [f"glake/{path.name}" for path in (ROOT / "include/glake").iterdir()
                           if path.suffix in (".h", ".hpp")]
            + ["glake/version.h"],
            "bindir": ["glakectl"],
            "mandir": ["man1/glakectl.1", "man3/glake.3", "man3/glake-cpp.3",
                       "man3/glake-python.3", "man5/glake.conf.5", "man7/glake-preload.7",
                       "man7/glake-changes.7"],
            "sysconfdir": ["glake.conf"],
        }
        if "mandir" not in folders:
            del wanted["mandir"]
        for name, paths in wanted.items():
            there = [path for path in paths if (root / folders[name] / path).exists()]
            tap.none(sorted(set(paths) - set(there)), f"{name}: {' '.join(sorted(paths))}")
        for path in ("libdir/libglake.so.0", "bindir/glakectl"):
            name, file = path.split("/")
            code, said = run("readelf", "-dW", root / folders[name] / file)
            good = code == 0 and not re.search(r"\((RPATH|RUNPATH)\)", said)
            tap.ok(good, f"no search path in {file}", said)
        commands_and_keys(tap, root, folders)
        build_and_run(tap, root, folders, scratch)
    tap.done()


main(*sys.argv[1:])
