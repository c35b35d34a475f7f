# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The Debian packages: made from this tree, without a finding of lintian, each with the files and
the needs that it should have, and unpacked as they would lie, working.

    deb.py SOURCE BUILD VERSION
"""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from tap import Tap, run, skip_all
from tree import text

SOURCE, BUILD, VERSION = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
NEEDED = ("dpkg-buildpackage", "dh", "dh_python3", "lintian")
HOLDS = {
    "libglake0": [r"/usr/lib/[^/]+/glake/glake-probe", r"/usr/lib/[^/]+/libglake\.so\.0",
                  rf"/usr/lib/[^/]+/libglake\.so\.{VERSION}"],
    "libglake-dev": ["/usr/include/glake/glake.h", "/usr/include/glake/version.h",
                     r"/usr/lib/[^/]+/libglake\.a", r"/usr/lib/[^/]+/libglake\.so",
                     r"/usr/lib/[^/]+/cmake/glake/glake-config\.cmake",
                     r"/usr/lib/[^/]+/pkgconfig/glake\.pc", r"/usr/share/man/man3/glake\.3\.gz",
                     "/usr/share/man/man3/glake_alloc.3.gz",
                     "/usr/share/man/man3/glake-cpp.3.gz"],
    "glake-tools": ["/etc/glake.conf", "/usr/bin/glakectl", "/usr/bin/glaked", "/usr/libexec/glake/glakectl-bench",
                    r"/usr/lib/[^/]+/libglake-preload\.so", "/usr/share/man/man1/glakectl.1.gz",
                    "/usr/share/man/man1/glaked.1.gz", "/usr/lib/systemd/system/glaked.socket",
                    "/usr/lib/systemd/user/glaked.socket", "/usr/lib/sysusers.d/glake.conf",
                    "/usr/share/man/man5/glake.conf.5.gz",
                    "/usr/share/man/man7/glake-changes.7.gz",
                    "/usr/share/man/man7/glake-figures.7.gz",
                    "/usr/share/bash-completion/completions/glakectl",
                    "/usr/share/zsh/vendor-completions/_glakectl"],
    "python3-glake": [*(f"/usr/lib/python3/dist-packages/glake/{path.name}"
                        for path in (SOURCE / "lib" / "python" / "glake").glob("*.*")),
                      r"/usr/lib/[^/]+/libglake-torch\.so\.0", "/usr/share/glake/torch_allocator.cc",
                      "/usr/share/glake/torch_host.cc", "/usr/share/glake/torch_pools.hpp",
                      "/usr/share/glake/torch_watch.hpp",
                      "/usr/share/man/man3/glake-python.3.gz"],
}
CMAKE = """cmake_minimum_required(VERSION 3.18)
project(example C)
find_package(glake 0.2 REQUIRED)
add_executable(example example.c)
target_link_libraries(example glake::glake)
"""
WANTS = {
    "libglake0": ["libc6 (>=", "liburcu"],
    "libglake-dev": [f"libglake0 (= {VERSION}-", "liburcu-dev"],
    "glake-tools": [f"libglake0 (= {VERSION}-"],
    "python3-glake": [f"libglake0 (= {VERSION}-", "python3"],
}


def contents(tap, packages):
    for name, wanted in HOLDS.items():
        _, said = run("dpkg-deb", "--contents", packages[name])
        files = [line.split()[5].lstrip(".") for line in said.splitlines() if line[0] != "d"]
        absent = [want for want in wanted if not any(re.fullmatch(want, file) for file in files)]
        tap.none(absent, f"{name} holds what it should")
        foreign = [file for file in files if not re.match(
            r"/etc/glake\.conf|/usr/(bin/glake|include/glake/|lib/|libexec/glake/|share/)", file)]
        tap.none(foreign, "and nothing elsewhere")
        _, script = run("dpkg-deb", "--info", packages[name], "postinst")
        tap.none(re.findall("new installations run enable", script), "no unit is enabled by it")
        _, needs = run("dpkg-deb", "--field", packages[name], "Depends")
        tap.none([want for want in WANTS[name] if want not in needs], f"{name} depends: {needs}")
    for name, file, line in (("libglake0", "shlibs", f"libglake 0 libglake0 (>= {VERSION})"),
                             ("libglake0", "triggers", "activate-noawait ldconfig"),
                             ("glake-tools", "triggers", "activate-noawait ldconfig"),
                             ("glake-tools", "conffiles", "/etc/glake.conf")):
        _, said = run("dpkg-deb", "--info", packages[name], file)
        tap.ok(line in said.splitlines(), f"{name}, {file}: {line}", said)


def unpacked(tap, packages):
    """As the files would lie; the loader is told where, as no ldconfig has run."""
    with tempfile.TemporaryDirectory() as folder:
        for package in packages.values():
            run("dpkg-deb", "--extract", package, folder)
        root = Path(folder)
        lib = next(root.glob("usr/lib/*/libglake.so.0")).parent
        source = re.search(r"```c\n(.*?)```", text("README.md"), re.S)[1]
        (root / "example.c").write_text(source, encoding="utf-8")
        env = dict(os.environ, PKG_CONFIG_PATH=str(lib / "pkgconfig"), LD_LIBRARY_PATH=str(lib),
                   PKG_CONFIG_SYSROOT_DIR=folder, GLAKE_DRIVER_BACKEND="soft",
                   PYTHONPATH=str(root / "usr/lib/python3/dist-packages"),
                   GLAKE_LIBRARY_PATH=str(lib), PYTHONDONTWRITEBYTECODE="1")
        for what, words, name in (("", [], "-lglake"), (" --static", ["--static"], "-l:libglake.a")):
            _, flags = run("pkg-config", *words, "--cflags", "--libs", "glake", env=env)
            code, said = run("cc", root / "example.c", "-o", root / "example",
                             *(name if flag == "-lglake" else flag for flag in flags.split()))
            tap.ok(code == 0, f"README's example is compiled with pkg-config{what}", flags, said)
            code, said = run(root / "example", env=env)
            tap.ok(code == 0 and "bytes live" in said, "and runs", said)
        if shutil.which("cmake"):
            (root / "CMakeLists.txt").write_text(CMAKE, encoding="ascii")
            code, said = run("cmake", "-S", root, "-B", root / "cmake", f"-Dglake_DIR={lib}/cmake/glake")
            code, said = run("cmake", "--build", root / "cmake") if code == 0 else (code, said)
            tap.ok(code == 0, "it is compiled with CMake", said)
            code, said = run(root / "cmake/example", env=env)
            tap.ok(code == 0 and "bytes live" in said, "and runs", said)
        else:
            tap.skip("it is compiled with CMake", "cmake is not installed")
        code, said = run(root / "usr/bin/glakectl", "--version", env=env)
        tap.ok(code == 0 and VERSION in said, "glakectl starts", said)
        code, said = run("/usr/bin/python3", "-c",
                         "import glake; print(glake.__version__, len(glake.stats()), "
                         "glake.info()['configuration'])", env=env)
        tap.ok(said.split() == [VERSION, "1", "/etc/glake.conf"], "the module works", said)
        code, said = run("/bin/true", env=dict(env, LD_PRELOAD=str(lib / "libglake-preload.so")))
        tap.ok(code == 0 and not said, "and the preload", said)


def main():
    absent = [name for name in NEEDED if not shutil.which(name)]
    if absent:
        skip_all(f"{absent[0]} is not installed; t/setup package brings it")
    tap = Tap()
    code, said = run("sh", SOURCE / "lib/package/deb.sh", SOURCE, BUILD, VERSION)
    if tap.ok(code == 0, "the packages are made", *said.splitlines()[-40:]):
        findings = [line for line in said.splitlines() if re.match(r"[EW]: ", line)]
        if shutil.which("lintian"):
            tap.none(findings, "lintian finds nothing")
        else:
            tap.skip("lintian finds nothing", "lintian is not installed")
        packages = {path.name.split("_")[0]: path for path in (BUILD / "package").glob("*.deb")}
        names = {name for name in packages if not name.endswith("-dbgsym")}
        if tap.ok(names == set(HOLDS), "four packages", names):
            packages = {name: packages[name] for name in HOLDS}
            contents(tap, packages)
            unpacked(tap, packages)
    tap.done()


main()
