# SPDX-License-Identifier: LGPL-2.1-or-later
"""Programs that judge texts have nothing to say: shellcheck about the scripts, reuse about the licences."""

import shutil
import tempfile
from pathlib import Path

from tap import Tap, run
from tree import ROOT, files, text

COMPLETION = "lib/tool/glakectl.bash"  # which bash reads, and nobody runs


def check_scripts(tap, names):
    if not shutil.which("shellcheck"):
        tap.skip("shellcheck", "shellcheck is not installed")
        return
    scripts = [name for name in names if text(name).startswith(("#!/bin/sh", "#!/bin/bash"))]
    code, said = run("shellcheck", *scripts, cwd=ROOT)
    tap.ok(code == 0, f"shellcheck has no complaint about {len(scripts)} scripts", said)
    code, said = run("shellcheck", "-s", "bash", COMPLETION, cwd=ROOT)
    tap.ok(code == 0, "nor about the completion", said)
    with tempfile.TemporaryDirectory() as folder:
        planted = Path(folder) / "planted.sh"
        planted.write_text("#!/bin/sh\necho $1\n", encoding="ascii")
        tap.ok(run("shellcheck", planted)[0] != 0, "but about a planted one")


def check_licences(tap, names):
    """The text of the licence has one place here, which reuse does not know."""
    if not shutil.which("reuse"):
        tap.skip("reuse lint", "reuse is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            place = Path(folder) / ("LICENSES/LGPL-2.1-or-later.txt" if name == "COPYING" else name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place)
        code, said = run("reuse", "--root", folder, "lint")
        tap.ok(code == 0, f"reuse has no complaint about {len(names)} files", said)
        (Path(folder) / "planted.c").write_text("/* SPDX-License-" "Identifier: None-1.0 */\n", encoding="ascii")
        tap.ok(run("reuse", "--root", folder, "lint")[0] != 0, "but about a planted one")


def main():
    tap = Tap()
    names = files()
    check_scripts(tap, names)
    check_licences(tap, names)
    tap.done()


main()
