# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Half an install: a package, a plug-in and a library of different versions beside each other, two
libraries in one process, Python without PyTorch or with an old one, and a driver that is a stub.
Each is one sentence that names what it is about.

    versions.py INSTALLED LIBRARY PLUGIN PRELOAD FOLDER_OF_OTHERS VERSION FOLDER_OF_PROGRAMS
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tap import Tap, run
from tree import ROOT

INSTALLED, LIBRARY, PLUGIN, PRELOAD, OTHERS = map(Path, sys.argv[1:6])
OLD, NEW, NOW, FRONT = "0.1.9", "99.0.0", sys.argv[6], Path(sys.argv[7])
FIGURES = """
import json, warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import glake
    try:
        said = [glake.info(), len(glake.stats())]
    except glake.GlakeError as error:
        said = str(error)
with open("/proc/self/maps") as maps:
    files = {line.split()[-1] for line in maps if "libglake.so" in line}
print(json.dumps([said, [str(one.message) for one in seen], sorted(files), glake.__version__]))
"""
STUB = """
int cuInit(unsigned int flags) { (void)flags; return 34; }
int cuDriverGetVersion(int *ret_version) { *ret_version = 13000; return 0; }
int cuGetErrorString(int code, const char **ret) {
	(void)code; *ret = "CUDA driver is a stub library"; return 0; }
int cuGetErrorName(int code, const char **ret) {
	(void)code; *ret = "CUDA_ERROR_STUB_LIBRARY"; return 0; }
int cuGetProcAddress_v2(const char *name, void **ret, int v, unsigned long f, int *s) {
	(void)name; (void)v; (void)f; (void)s; *ret = 0; return 34; }
"""
OLD_TORCH = """
__version__ = "1.8.0"
class version:
    cuda = "11.1"
class cuda:
    class memory:
        pass
"""


def site(folder, library=LIBRARY, plugin=PLUGIN):
    """The package with libraries in it, as a wheel has them."""
    folder = Path(tempfile.mkdtemp(dir=folder)).resolve()
    (folder / "glake" / "lib").mkdir(parents=True)
    for path in (ROOT / "lib" / "python" / "glake").glob("*.py"):
        shutil.copy(path, folder / "glake")
    shutil.copy(INSTALLED, folder / "glake")
    shutil.copy(library, folder / "glake" / "lib" / "libglake.so.0")
    shutil.copy(plugin, folder / "glake" / "lib" / "libglake-torch.so.0")
    shutil.copy(PRELOAD, folder / "glake" / "lib")
    return folder


def clean(**more):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("GLAKE_", "PYTHON", "LD_LIBRARY", "LD_PRELOAD"))}
    return dict(env, **{"GLAKE_DRIVER_BACKEND": "soft", "GLAKE_MAP_SPAN": "64GiB",
                        "PYTHONDONTWRITEBYTECODE": "1", **more})


def python(code, folder, **env):
    """Exit status and what a program says with the module of a folder."""
    return run(sys.executable, "-S", "-c", code, cwd=folder,
               env=clean(PYTHONPATH=str(folder), **env))


def figures(tap, what, folder, **env):
    code, said = python(FIGURES, folder, **env)
    try:
        return json.loads(said)
    except ValueError:
        tap.ok(False, what, code, said)
        return None


def sentence(tap, said, what, *parts):
    """One line, with every part in it."""
    good = isinstance(said, str) and "\n" not in said.strip()
    tap.ok(good and all(str(part) in said for part in parts), what, said)


def alike(tap, folder):
    beside = site(folder)
    got = figures(tap, "all of one version", beside)
    if not got:
        return
    said, warned, files, version = got
    lib = beside / "glake" / "lib"
    tap.none(warned, "all of one version: no warning")
    tap.ok(version == NOW, f"glake.__version__ is {NOW}", version)
    want = {"version": NOW, "module": f"{beside}/glake/__init__.py", "library_version": NOW,
            "library": f"{lib}/libglake.so.0", "plugin": f"{lib}/libglake-torch.so.0",
            "preload": f"{lib}/libglake-preload.so"}
    tap.ok(isinstance(said, list) and said[1] == 1 and want.items() <= said[0].items(),
           "the libraries in the package are taken", said)
    tap.ok(files == [want["library"]], "and one library is in the process", files)
    code, text = run(sys.executable, "-S", "-m", "glake", "--info", cwd=beside, env=clean())
    tap.ok(code == 0 and f"library: {lib}/libglake.so.0\n" in text and
           "configuration: /" in text, "python3 -m glake --info says so", text)


def mixed(tap, folder):
    for what, parts, versions in (
            ("an old library", {"library": OTHERS / "libglake-old.so"}, (NOW, OLD)),
            ("an old plug-in", {"plugin": OTHERS / "libglake-torch-old.so"}, (NOW, OLD)),
            ("a new plug-in", {"plugin": OTHERS / "libglake-torch-new.so"}, (NOW, NEW))):
        beside = site(folder, **parts)
        got = figures(tap, what, beside)
        name = "libglake.so.0" if "library" in parts else "libglake-torch.so.0"
        if got:
            sentence(tap, got[0], f"{what} is refused, with versions and files", *versions,
                     beside / "glake" / "__init__.py", beside / "glake" / "lib" / name)
    beside = site(folder, library=OTHERS / "libglake-new.so")
    got = figures(tap, "a new library", beside)
    if got:
        tap.ok(isinstance(got[0], list) and got[0][0]["library_version"] == NEW,
               "a new library is used", got)
        sentence(tap, "".join(got[1]), "and warned of", NOW, NEW, beside / "glake" / "__init__.py",
                 beside / "glake" / "lib" / "libglake.so.0")
    source, first = Path(folder) / "first.c", Path(folder) / "first.so"
    source.write_text("void *glake_torch_context(void) { return 0; }\n", encoding="utf-8")
    if not shutil.which("cc"):
        tap.skip("a plug-in that says no version", "no compiler")
        return
    run("cc", "-shared", "-fPIC", source, "-o", first)
    got = figures(tap, "a plug-in that says no version", site(folder, plugin=first))
    if got:
        sentence(tap, got[0], "a plug-in that says no version is refused", "its plug-in, 0.1 (")


def plugin_alone(tap, folder):
    """The plug-in loaded by somebody else, over an old library."""
    beside = site(folder, library=OTHERS / "libglake-old.so")
    code, said = python("""
import ctypes
lib = ctypes.CDLL("glake/lib/libglake.so.0")
plug = ctypes.CDLL("glake/lib/libglake-torch.so.0")
plug.glake_torch_why.restype = ctypes.c_char_p
print(plug.glake_torch_why().decode())
""", beside)
    sentence(tap, said, "the plug-in alone refuses an old library", NOW, OLD,
             "libglake-torch.so.0", "libglake.so.0")
    tap.ok(code == 0, "and ends no process")


TWO = """
import ctypes, sys
libs = [ctypes.CDLL(path) for path in sys.argv[1:]]
ctx = ctypes.c_void_p()
for lib in libs + libs:
    assert not lib.glake_open(None, ctypes.byref(ctx))
    at = ctypes.c_void_p()
    assert not lib.glake_alloc(ctx, 0, ctypes.c_size_t(4 << 20), None, 0, ctypes.byref(at))
    others = [other for other in libs if other != lib]
    assert all(other.glake_free(ctx, at, None) < 0 for other in others)
    assert not lib.glake_free(ctx, at, None) and not lib.glake_close(ctx, None)
"""


def two(tap, folder):
    """Two copies that somebody loaded by their paths."""
    one, other = site(folder), site(folder, library=OTHERS / "libglake-new.so")
    paths = [place / "glake" / "lib" / "libglake.so.0" for place in (one, other)]
    code, said = run(sys.executable, "-S", "-c", TWO, *paths,
                     env=clean(GLAKE_LOG_LEVEL="warning"))
    lines = [line for line in said.splitlines() if "two copies" in line]
    tap.ok(code == 0, "two libraries work beside each other, and refuse each other's blocks", said)
    tap.ok(len(lines) == 2, "each says once that it is not alone", said)
    for line in lines:
        sentence(tap, line, "with versions and files", NOW, NEW, *paths)
    code, said = run(sys.executable, "-S", "-c", TWO, paths[0],
                     env=clean(GLAKE_LOG_LEVEL="warning"))
    tap.ok(code == 0 and "two copies" not in said, "one alone says nothing", said)


def preloaded(tap, folder):
    """A package with libraries in it, in a process whose preload has others beside it."""
    system, beside = site(folder) / "glake" / "lib", site(folder)
    env = {"LD_PRELOAD": str(system / "libglake-preload.so"), "LD_LIBRARY_PATH": str(system)}
    got = figures(tap, "under a preload", beside, **env)
    if got:
        tap.ok(len(got[2]) == 1 and not got[1], "under a preload there is one library", got)


def preload_alone(tap, folder):
    """The preload over an old library, in a program that asks for memory."""
    old = Path(tempfile.mkdtemp(dir=folder))
    shutil.copy(OTHERS / "libglake-old.so", old / "libglake.so.0")
    env = {"LD_PRELOAD": str(PRELOAD), "GLAKE_LOG_LEVEL": "warning"}
    said = {}
    for what, path in (("now", FRONT), ("old", f"{old}:{FRONT}")):
        code, said[what] = run(FRONT / "preload-linked", "symbol",
                               env=clean(**env, LD_LIBRARY_PATH=str(path)))
        tap.ok(code == 0, f"a program under the preload, library: {what}", said[what])
    lines = [line for line in said["old"].splitlines() if "preload: " in line]
    sentence(tap, "\n".join(lines), "the preload leaves the GPU to the driver over an old library",
             "left to the driver", NOW, OLD)
    tap.ok("two versions" not in said["now"], "and not over its own", said["now"])


def python_alone(tap, folder):
    beside = site(folder)
    (beside / "job.py").write_text("print('ran')\n", encoding="utf-8")
    command = [sys.executable, "-S", "-m", "glake", "job.py"]
    code, said = run(*command, cwd=beside, env=clean())
    tap.ok(code == 1, "python3 -m glake without PyTorch fails")
    sentence(tap, said, "with a sentence", "glake: PyTorch is not installed")
    (beside / "torch.py").write_text(OLD_TORCH, encoding="utf-8")
    code, said = run(*command, cwd=beside, env=clean())
    tap.ok(code == 1, "with a PyTorch that takes no plug-in it fails")
    sentence(tap, said, "with a sentence", "glake: PyTorch 1.8.0 is too old")


def stub(tap, folder):
    """A libcuda.so.1 that is there to be linked with."""
    if not shutil.which("cc"):
        tap.skip("a stub of the driver", "no compiler")
        return
    beside = site(folder)
    (beside / "stub.c").write_text(STUB, encoding="utf-8")
    run("cc", "-shared", "-fPIC", beside / "stub.c", "-o", beside / "libcuda.so.1")
    env = {"LD_LIBRARY_PATH": str(beside)}
    for backend in ("auto", "cuda"):
        got = figures(tap, "a stub", beside, **env, GLAKE_DRIVER_BACKEND=backend)
        if got:
            sentence(tap, got[0], f"a stub of the driver, driver.backend={backend}",
                     "glake could not be opened", "stub")


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory() as folder:
        for part in (alike, mixed, plugin_alone, two, preloaded, preload_alone, python_alone,
                     stub):
            part(tap, folder)
    tap.done()


main()
