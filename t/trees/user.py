# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Somebody who has just installed glake, and whose shell has read what README says, no more: the
compiler, the loader, man and Python find it, and it says the truth about where it lies. What is
run with an empty environment finds the library from its own place.

    user.py PREFIX CONFIGURATION
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "abi"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import readme  # noqa: E402
from tap import Tap, run  # noqa: E402

SOFT = dict(os.environ, GLAKE_DRIVER_BACKEND="soft", GLAKE_LOG_LEVEL="error")


def compiles(tap):
    source, line = readme.example()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "example.c").write_text(source, encoding="utf-8")
        code, said = run("sh", "-ec", line, cwd=folder)
        if not tap.ok(code == 0 and not said, f"README's example: {line}", said):
            return
        code, said = run("./a.out", cwd=folder, env=SOFT)
        tap.ok(code == 0 and "bytes live" in said, "and it runs", said)


def compiles_cpp(tap, prefix):
    if not shutil.which("c++"):
        tap.skip("the example of glake-cpp(3)", "no compiler for C++")
        return
    page = Path(f"{prefix}/share/man/man3/glake-cpp.3").read_text(encoding="utf-8")
    source = re.search(r"\.Bd -literal\n(.*?)\.Ed", page.split(".Sh EXAMPLES")[1], re.S)[1]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "example.cc").write_text(source.replace("\\e", "\\"), encoding="utf-8")
        line = "c++ -std=c++17 -Wall -Werror example.cc $(pkg-config --cflags --libs glake)"
        code, said = run("sh", "-ec", line, cwd=folder)
        if not tap.ok(code == 0 and not said, "the example of glake-cpp(3)", said):
            return
        code, said = run("./a.out", cwd=folder, env=SOFT)
        tap.ok(code == 0 and said == f"{48 << 20} bytes live\n", "and it runs", said)


def tool(tap, prefix, conf):
    found = shutil.which("glakectl")
    tap.ok(found == f"{prefix}/bin/glakectl", "the shell finds the tool", found)
    code, said = run(f"{prefix}/bin/glakectl", "--version", env={})
    tap.ok(code == 0, "which starts with an empty environment", said)
    code, said = run("glakectl", "conf", "check")
    tap.ok(code == 0 and said == f"{conf}; ok\n", "its configuration is there and right", said)
    code, said = run("glakectl", "conf", "show")
    tap.ok(said.endswith(f"\nFile: {conf}\n"), "conf show names it", said[-200:])
    code, said = run("glakectl", "info", "-d", "soft")
    tap.ok(re.search(rf"^ +conf file +{re.escape(str(conf))}$", said, re.M), "and info", said)
    for command in readme.tool_commands():
        code, said = run("glakectl", *command.split(), "--help")
        tap.ok(code == 0, f"README: glakectl {command}", said)
    shipped = Path(conf).read_text(encoding="utf-8")
    for section, key, default in readme.keys():
        part = shipped.split(f"[{section}]")[-1].split("\n[")[0]
        tap.ok(f";{key} = {default}\n" in part, f"README: {section}.{key} = {default}", part)
    tap.ok(readme.tool_commands() and readme.keys(), "README shows commands and keys")


def manual(tap, prefix, conf):
    pages = ("glake", "glake_alloc", "glakectl", "glake.conf", "glake-preload", "glake-python")
    if not shutil.which("man"):
        tap.skip("the manual", "man is not installed")
        return
    for page in pages:
        code, said = run("man", "-w", page)
        place = os.path.realpath(said.strip())
        tap.ok(code == 0 and place.startswith(f"{prefix}/share/man/"), f"man {page}", said)
    code, said = run("man", "-w", "7", "glake")
    place = os.path.realpath(said.strip())
    tap.ok(code == 0 and place.startswith(f"{prefix}/share/man/man7/"), "man 7 glake", said)
    code, said = run("man", "-P", "cat", "glake.conf", env=dict(os.environ, MANWIDTH="300"))
    tap.ok(code == 0 and conf in said, "the page of the configuration names it", said[:300])


def python(tap, prefix):
    code, said = run("python3", "-c", "import glake; print(glake.__file__, glake.library.load().path)")
    words = said.split()
    tap.ok(code == 0 and len(words) == 2 and words[0].startswith(prefix) and
           words[1].startswith(f"{prefix}/lib/libglake-torch.so"), "import glake", said)
    code, said = run("python3", "-c", "import glake; print(glake.stats(0)['live'])", env=SOFT)
    tap.ok((code, said) == (0, "0\n"), "and it opens", said)


def preload(tap, prefix):
    path = f"{prefix}/lib/libglake-preload.so"
    code, said = run("/bin/true", env={"LD_PRELOAD": path})
    tap.ok(code == 0 and not said, "a program runs with it in an empty environment", said)
    code, said = run("/bin/true", env=dict(os.environ, LD_PRELOAD="libglake-preload.so"))
    tap.ok(code == 0 and not said, "and by its name alone", said)
    plug = f"{prefix}/lib/libglake-torch.so.0"
    code, said = run(sys.executable, "-c", f"import ctypes; ctypes.CDLL({plug!r})", env={})
    tap.ok(code == 0, "the plug-in of PyTorch loads with one too", said)


def main(prefix, conf):
    tap = Tap()
    for name in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "PYTHONPATH", "MANPATH"):
        print(f"# {name}={os.environ.get(name, '')}")
    try:
        compiles(tap)
        compiles_cpp(tap, prefix)
        tool(tap, prefix, conf)
        manual(tap, prefix, conf)
        python(tap, prefix)
        preload(tap, prefix)
    except (OSError, subprocess.SubprocessError) as error:
        tap.ok(False, "what README names is there", error)
    tap.done()


main(*sys.argv[1:])
