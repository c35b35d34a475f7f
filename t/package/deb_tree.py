# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The Debian packages in a bare system, made by debootstrap below the build folder: installed by apt,
used as README says, upgraded and downgraded beside a program that goes on, and purged.

    deb_tree.py BUILD [SUITE [MIRROR]]

By hand, as root, after `ninja -C BUILD deb`, on a machine that reaches an archive of Debian. The
tree is made once, in some minutes, and kept.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "abi"))
from tap import Tap, run, skip_all  # noqa: E402
from tree import text  # noqa: E402

PACKAGES = ("libglake0", "libglake-dev", "glake-tools", "python3-glake")
TREE = "gcc,libc6-dev,pkg-config,python3,man-db,ca-certificates"
# What a system writes of itself.
LEFT_OUT = re.compile(r"/(proc|sys|dev|run|tmp|root)/|/var/(cache|lib/(apt|dpkg|systemd)|log)/|"
                      r"/etc/ld\.so\.cache|/etc/glake\.conf\.dpkg|.*/__pycache__")
RUNNER = r"""
#include <glake/glake.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
static volatile sig_atomic_t over;
static void end(int signal) { over = signal; }
int main(void)
{
	struct glake *ctx;
	void *ptr;
	signal(SIGTERM, end);
	if (glake_open(NULL, &ctx))
		return 1;
	for (unsigned long i = 0; !over; i++) {
		if (glake_alloc(ctx, 0, (size_t)1 << (12 + i % 14), NULL, 0, &ptr) ||
			glake_free(ctx, ptr, NULL))
			return 2;
		if (i % 1000 == 0) {
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
			printf("%lu %s\n", i, glake_version_string());
			fflush(stdout);
		}
	}
	return glake_close(ctx, NULL) ? 3 : 0;
}
"""


class Tree:
    """A system that commands run in."""

    def __init__(self, root):
        self.root = root

    def run(self, *command, **env):
        return run("chroot", self.root, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                   "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", *(
                       f"{name}={value}" for name, value in env.items()), *command)

    def files(self):
        found = set()
        for folder, below, names in os.walk(self.root):
            for name in below + names:
                path = os.path.join(folder, name)[len(str(self.root)):]
                if not LEFT_OUT.match(path):
                    found.add(path)
        return found

    def write(self, name, content):
        (self.root / name).write_text(content, encoding="utf-8")


def make(root, suite, mirror):
    ready = root.with_suffix(".ready")
    if not ready.exists():
        shutil.rmtree(root, ignore_errors=True)
        code, said = run("debootstrap", "--variant=minbase", f"--include={TREE}", suite, root, mirror)
        if code:
            skip_all(f"debootstrap made no tree: {said.strip().splitlines()[-1]}")
        ready.touch()
    for name in ("resolv.conf", "hosts"):
        if os.path.exists(f"/etc/{name}"):
            shutil.copy(f"/etc/{name}", root / "etc")
    return Tree(root)


def newer(package, folder):
    """The same package under a later version, with another file of the library in it."""
    place = folder / package.name.split("_")[0]
    shutil.rmtree(place, ignore_errors=True)
    run("dpkg-deb", "--raw-extract", package, place)
    control = place / "DEBIAN" / "control"
    version = re.search(r"^Version: (.*)$", control.read_text(), re.M)[1]
    control.write_text(control.read_text().replace(version, version + ".1"))
    if (place / "etc").exists():
        with open(place / "etc" / "glake.conf", "a", encoding="utf-8") as file:
            file.write("# of the later version\n")
    target = folder / package.name.replace(version, version + ".1")
    run("dpkg-deb", "--root-owner-group", "--build", place, target)
    return target.name


def installed(tap, tree, names):
    code, said = tree.run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "install", "-y",
                          "--no-install-recommends", *(f"/tmp/debs/{name}" for name in names))
    return tap.ok(code == 0, f"apt installs {' '.join(names)}", said)


def used(tap, tree):
    tree.write("root/example.c", re.search(r"```c\n(.*?)```", text("README.md"), re.S)[1])
    soft = {"GLAKE_DRIVER_BACKEND": "soft"}
    line = next(line for line in text("README.md").splitlines() if line.startswith("    cc example.c"))
    code, said = tree.run("sh", "-c", f"cd /root && {line.strip()} && ./a.out", **soft)
    tap.ok(code == 0 and "bytes live" in said, "README's example, by the line of README", said)
    code, said = tree.run("sh", "-c", "cd /root && cc example.c -o static $(pkg-config --static --cflags "
                          "--libs glake | sed s/-lglake/-l:libglake.a/) && ldd static && ./static",
                          **soft)
    tap.ok(code == 0 and "bytes live" in said and "libglake" not in said,
           "and with the static library", said)
    code, said = tree.run("python3", "-c", "import glake; print(glake.stats()[0]['live'])", **soft)
    tap.ok(code == 0 and said == "0\n", "import glake", said)
    code, said = tree.run("glakectl", "info", **soft)
    tap.ok(code == 0, "glakectl info", said)
    code, said = tree.run("/bin/true", LD_PRELOAD="libglake-preload.so")
    tap.ok(code == 0 and not said, "the preload, by its name alone", said)
    _, shipped = tree.run("dpkg", "-L", *PACKAGES)
    for page in re.findall(r"/usr/share/man/man\d/(\S+)\.\d\.gz", shipped):
        code, said = tree.run("man", "-w", page)
        tap.ok(code == 0, f"man {page}", said)


def beside_a_program(tap, tree, names, later):
    """A program that allocates while its library is replaced by a later and an earlier one."""
    tree.write("root/runner.c", RUNNER)
    code, said = tree.run("sh", "-c", "cd /root && cc runner.c -o runner $(pkg-config --cflags "
                          "--libs glake)")
    if not tap.ok(code == 0, "a program that goes on", said):
        return
    out = tree.root / "root" / "runner.out"
    with open(out, "w", encoding="utf-8") as file:
        command = ["chroot", tree.root, "env", "GLAKE_DRIVER_BACKEND=soft", "/root/runner"]
        with subprocess.Popen(command, stdout=file, stderr=file) as program:
            for which in (later, names):
                code, said = tree.run("dpkg", "--force-confdef", "--force-confold", "-i", *(
                    f"/tmp/debs/{name}" for name in which))
                tap.ok(code == 0, f"dpkg -i {' '.join(which)}", said)
                before = out.stat().st_size
                while program.poll() is None and out.stat().st_size == before:
                    time.sleep(0.01)
                tap.ok(program.poll() is None and out.stat().st_size > before,
                       "the program that began before goes on", out.read_text()[-300:])
                code, said = tree.run("/root/a.out", GLAKE_DRIVER_BACKEND="soft")
                tap.ok(code == 0, "and one that begins after it runs", said)
            program.terminate()
            program.wait(240)
    tap.ok(program.returncode == 0, "it ends well", program.returncode)


def main():
    build = Path(sys.argv[1]).resolve()
    suite, mirror = (sys.argv[2:] + ["bookworm", "http://deb.debian.org/debian"][len(sys.argv[2:]):])[:2]
    if os.geteuid() or not shutil.which("debootstrap"):
        skip_all("this needs root and debootstrap")
    packages = []
    for name in PACKAGES:
        found = sorted((build / "package").glob(f"{name}_*.deb"))
        if not found:
            skip_all(f"there is no {name}: ninja -C {build} deb makes it")
        packages += found[:1]
    tree = make(build / "package" / f"tree-{suite}", suite, mirror)
    tap = Tap()
    debs = tree.root / "tmp" / "debs"
    shutil.rmtree(debs, ignore_errors=True)
    debs.mkdir()
    tree.run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "update")
    _, needs = run("dpkg-deb", "--field", packages[1], "Depends")
    others = [word.split()[0] for word in needs.split(", ") if not word.startswith("libglake0")]
    tree.run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "install", "-y", *others)
    for package in packages:
        shutil.copy(package, debs)
    later = [newer(package, debs) for package in packages]
    before, names = tree.files(), [package.name for package in packages]
    if installed(tap, tree, names):
        used(tap, tree)
        with open(tree.root / "etc" / "glake.conf", "a", encoding="utf-8") as file:
            file.write("# of this machine\n")
        beside_a_program(tap, tree, names, later)
        conf = (tree.root / "etc" / "glake.conf").read_text(encoding="utf-8")
        tap.ok(conf.endswith("# of this machine\n"), "a changed configuration stays", conf[-200:])
    code, said = tree.run("dpkg", "--purge", *PACKAGES)
    tap.ok(code == 0, "purge", said)
    tap.none(sorted(tree.files() - before), "leaves nothing")
    tap.none(sorted(before - tree.files()), "and takes nothing else away")
    tap.done()


main()
