# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Where the files of a build folder would go. With --own also: installing into a prefix of one's own as
lib/install/README.md says, by a user without rights, from a copy of the tree in a folder that this user
may enter, which compiles all of it once more; what such a user finds then; and what an uninstall leaves.

    install.py [--own] BUILD PREFIX GLAKECTL

The system's own prefix, as root and in bare systems: t/trees/run.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "abi"), str(HERE.parent / "trees")]
import readme  # noqa: E402
from tap import Tap, run  # noqa: E402
from tree import ROOT, files  # noqa: E402

USER = 12345
SET = ("GLAKE_", "LD_", "PKG_CONFIG", "PYTHON", "MANPATH", "DESTDIR", "CFLAGS")


class Shell:
    """Runs commands in the copy, as the user."""

    def __init__(self, folder):
        self.tree, self.home = folder / "tree", folder / "home"
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(SET)}
        # speed is not looked at, and a compiler is faster without
        self.env.update(HOME=str(self.home), CFLAGS="-O0 -Wno-cpp", LC_ALL="C.UTF-8",
                        XDG_CACHE_HOME=str(folder / "cache"))
        self.who = {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}

    def __call__(self, script, **env):
        return run("sh", "-ec", script, cwd=self.tree, env=self.env | env,
                   stdin=subprocess.DEVNULL, **self.who)


def copy_tree(folder):
    """What an install reads of the tree."""
    for name in files():
        if not name.startswith("t/") or name.startswith("t/trees/") or name in (
                "t/meson.build", "t/abi/tap.py"):
            place = folder / "tree" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place)
    (folder / "home").mkdir()
    if os.geteuid() == 0:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, USER, USER)


def there(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def has_all(tap, found):
    wanted = [f"lib/{name}" for name in (
        "glake/glake-probe", "libglake.so", "libglake.so.0", "libglake-torch.so.0", "libglake-preload.so",
        "pkgconfig/glake.pc", "cmake/glake/glake-config.cmake",
        "cmake/glake/glake-config-version.cmake")]
    wanted += [f"include/glake/{path.name}" for path in (ROOT / "include/glake").iterdir()
               if path.suffix in (".h", ".hpp")]
    wanted += ["include/glake/version.h", "bin/glakectl", "etc/glake.conf"]
    wanted += [f"libexec/glake/glakectl-{part}" for part in ("bench", "doctor", "trace", "engine")]
    wanted += [f"share/man/{page}" for page in (
        "man1/glakectl.1", "man3/glake.3", "man3/glake-cpp.3", "man3/glake-python.3",
        "man3/glake_alloc.3", "man5/glake.conf.5", "man7/glake-changes.7",
        "man7/glake-figures.7", "man7/glake-preload.7", "man7/glake-uvm.7", "man7/glake.7")]
    tap.none(sorted(set(wanted) - set(found)), "all files are there")


def own_prefix(tap, shell):
    prefix = shell.home / ".local"
    code, said = shell(readme.commands("own"))
    if not tap.ok(code == 0, "README's commands for a prefix of one's own", said[-2000:]):
        return
    tap.ok(os.listdir(shell.home) == [".local"], "write below it alone", os.listdir(shell.home))
    has_all(tap, there(prefix))
    tap.ok(f". {prefix}/share/glake/paths.sh\n" in said, "and name what a shell reads",
           said[:3000])
    code, said = shell(readme.commands("paths") +
                       f"exec python3 t/trees/user.py {prefix} {prefix}/etc/glake.conf")
    tap.ok(code == 0, "a user whose shell has read it", said)


def conf(tap, shell):
    """A configuration is the user's as soon as it differs from what was installed."""
    place = shell.home / ".local/etc/glake.conf"
    shipped = place.read_text(encoding="utf-8")
    again = "meson install -C build-home"
    shell("echo '; mine' >>~/.local/etc/glake.conf")
    code, said = shell(again)
    tap.ok(code == 0 and place.read_text(encoding="utf-8") == shipped + "; mine\n",
           "another install keeps it", said[-300:])
    code, said = shell(readme.commands("uninstall").replace("build", "build-home"))
    tap.ok(code == 0 and f"Keeping {place}, which is not as it was installed\n" in said,
           "uninstall too", said)
    tap.ok(there(shell.home) == [".local/etc/glake.conf"], "and nothing else", there(shell.home))
    shell("rm ~/.local/etc/glake.conf && ln -s nothing ~/.local/etc/glake.conf")
    code, said = shell(again)
    tap.ok(code == 0 and place.is_symlink(), "a link is not followed", said[-300:])
    shell("rm ~/.local/etc/glake.conf")
    code, said = shell(f"{again} && {again} && . ~/.local/share/glake/paths.sh && "
                       "python3 -c 'import glake' && ls ~/.local/lib/python*/*/glake/__pycache__")
    tap.ok(code == 0 and "__init__." in said, "installed twice, and used", said[-300:])
    code, said = shell(readme.commands("uninstall").replace("build", "build-home"))
    tap.ok(code == 0 and not os.listdir(shell.home), "an uninstall leaves nothing", said,
           there(shell.home))
    shell("mkdir ~/.local && echo >~/.local/etc")
    code, said = shell(again)
    tap.ok(code != 0 and f"glake: {place} cannot be written" in said,
           "without a place for it the install fails and says so", said[-600:])
    shell("ninja -C build-home uninstall && rm -r ~/.local")


def staged(tap, shell):
    code, said = shell("meson install -C build-home", DESTDIR=str(shell.home / "stage"))
    root = shell.home / "stage"
    has_all(tap, there(Path(f"{root}{shell.home}/.local")))
    tap.ok(code == 0 and os.listdir(shell.home) == ["stage"], "DESTDIR has all of it", said[-300:])
    code, said = shell("ninja -C build-home uninstall")
    tap.ok(code == 0 and not os.listdir(shell.home), "and is empty again", said, there(shell.home))


def places(tap, build, prefix, tool):
    """Where this build would go; it is not installed, which would write over its own notes."""
    code, said = run("meson", "introspect", "--installed", build)
    found = list(json.loads(said).values()) if code == 0 else []
    # links and the configuration are made when it is installed
    made = [f"lib/libglake{end}" for end in (".so", ".so.0", "-torch.so.0")] + ["etc/glake.conf"]
    has_all(tap, made + [place.removeprefix(f"{prefix}/") for place in found])
    if prefix not in ("/usr", "/usr/local"):
        tap.skip("the places of the system", f"the prefix is {prefix}")
        return
    tap.none([place for place in found if not place.startswith(f"{prefix}/")], "below the prefix alone")
    tap.ok(f"{prefix}/share/glake/paths.sh" not in found, "with no file of paths")
    code, said = run(tool, "conf", "show")
    tap.ok("\nFile: /etc/glake.conf" in said, "the configuration is in /etc", said[-300:])
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    code, said = run(python, "-I", "-c", "import sys; print(*sys.path, sep='\\n')")
    looked = {f"{folder}/glake/__init__.py" for folder in said.split("\n")}
    tap.ok(looked & set(found), "Python looks where the package is", said, *found)
    if prefix == "/usr/local":
        leaves(tap, {str(folder.relative_to(prefix)) for place in found for folder in Path(place).parents[:-3]})


def leaves(tap, folders):
    """Those that no fresh system has are known to uninstall, which takes them away when they are empty."""
    system = re.compile(r"\.|bin|include|lib|lib/[^/]*-linux-gnu|lib/python[^/]*(/dist-packages)?|share|share/man")
    script = (ROOT / "lib/install/uninstall.sh").read_text(encoding="utf-8")
    is_leaf = re.search(r"^is_leaf\(\) {.*?^}", script, re.S | re.M)[0]
    code, said = run("sh", "-c", is_leaf + '\nfor one; do is_leaf "/usr/local/$one" || echo "$one"; done', "sh",
                     *sorted(name for name in folders if not system.fullmatch(name)))
    tap.ok(code == 0 and not said, "uninstall knows its folders", said)


def own(tap):
    for program in ("meson", "ninja", "pkg-config", "cc"):
        if not shutil.which(program):
            tap.skip("a prefix of one's own", f"{program} is not on PATH")
            return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        copy_tree(folder)
        shell = Shell(folder)
        own_prefix(tap, shell)
        conf(tap, shell)
        staged(tap, shell)


def main(*args):
    tap = Tap()
    places(tap, *args[-3:])
    if args[0] == "--own":
        own(tap)
    tap.done()


main(*sys.argv[1:])
