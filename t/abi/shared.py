# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What a host gets with libglake.so: no way to end the process, little thread-local storage that
needs no call, no search path, and the hardening that was asked of the linker.
"""

import re
import sys

from tap import Tap, run, skip_all

TLS_MOST = 64
ENDS_THE_HOST = {"abort", "exit", "_exit", "_Exit", "__assert_fail", "raise", "longjmp",
                 "quick_exit", "__longjmp_chk", "siglongjmp"}


def read(*command):
    code, said = run(*command)
    if code:
        skip_all(f"{command[0]}: {said.strip()}")
    return said


def main(library, release):
    undefined = {line.split()[-1].split("@")[0]
                 for line in read("nm", "-D", "--undefined-only", library).splitlines()}
    dynamic = read("readelf", "-dW", library)
    segments = read("readelf", "-lW", library)
    tap = Tap()
    if release == "yes":
        tap.none(sorted(undefined & ENDS_THE_HOST), "it cannot abort or exit")
    else:
        tap.skip("it cannot abort or exit", "a build with asserts")
    tap.ok("__tls_get_addr" not in undefined, "thread-local storage needs no call")
    tls = re.search(r"^\s+TLS\s+(?:0x\w+\s+){4}(0x\w+)", segments, re.M)
    size = int(tls[1], 16) if tls else 0
    tap.ok(0 < size <= TLS_MOST, f"{size} bytes of it, at most {TLS_MOST}")
    tap.ok("STATIC_TLS" in dynamic, "and it says so: STATIC_TLS")
    tap.ok("[libglake.so.0]" in dynamic, "soname libglake.so.0", dynamic)
    tap.ok(not re.search(r"\((RPATH|RUNPATH|TEXTREL)\)", dynamic), "no RPATH, no TEXTREL", dynamic)
    tap.ok("BIND_NOW" in dynamic and "NODELETE" in dynamic, "bound at load, never unloaded")
    tap.ok("GNU_RELRO" in segments, "relocations are read-only after it")
    tap.ok(re.search(r"GNU_STACK.*\sRW\s", segments), "the stack is not executable")
    tap.done()


main(sys.argv[1], sys.argv[2])
