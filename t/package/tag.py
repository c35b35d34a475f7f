# SPDX-License-Identifier: LGPL-2.1-or-later
"""t/tag: a version has notes, and a tag with them once t/trees/run passed in a checkout of its commit, and else none."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tap import Tap, run, skip_all
from tree import ROOT, text

# somebody goes on beside it
TREES = "#!/bin/sh\necho \"$1 $PWD\" >>{seen}\ngit -C {place} commit -q --allow-empty -m more\nexit {status}\n"


def git(folder, *words):
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True, env=env).stdout


def main():
    reads = shutil.which("mandoc") or (shutil.which("man") and shutil.which("groff"))
    if not shutil.which("git") or not reads:
        skip_all("git is not installed, or neither mandoc nor man")
    tap = Tap()
    for version in re.findall(r"^\.Sh VERSION (\S+)", text("lib/man/glake-changes.7"), re.M):
        code, said = run(ROOT / "t/tag", "--notes", version)
        tap.ok(code == 0 and said.startswith(f"glake {version}\n\n") and said.count("\n") > 3, f"{version} has notes", said)
    code, said = run(ROOT / "t/tag", "--notes", "9.9")
    tap.ok(code == 1 and "glake-changes(7) tells nothing of version 9.9" in said, "what there is not has none", said)
    with tempfile.TemporaryDirectory() as folder:
        place, seen = Path(folder) / "tree", Path(folder) / "seen"
        for name in ("t/tag", "lib/man/glake-changes.7", "meson.build"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place / name)
        git(folder, "init", "-q", place)
        for key, value in (("user.name", "nobody"), ("user.email", "nobody@localhost")):
            git(place, "config", key, value)
        version = re.search(r"version: '([^']+)'", text("meson.build"))[1]
        commits = []
        (place / "t/trees").mkdir()
        for status in (1, 0):
            (place / "t/trees/run").write_text(TREES.format(seen=seen, place=place, status=status), encoding="ascii")
            (place / "t/trees/run").chmod(0o755)
            git(place, "add", "-A")
            git(place, "commit", "-qm", "one")
            commits.append(git(place, "rev-parse", "HEAD").strip())
        code, said = run(place / "t/tag", version, commits[0])
        tap.ok(code == 1 and "does not pass t/trees/run --test" in said and not git(place, "tag"), "what fails has no tag", said)
        code, said = run(place / "t/tag", "0.1.0")
        tap.ok(code == 1 and f"HEAD is of version {version}" in said, "nor has another version", said)
        passes = git(place, "rev-parse", "HEAD").strip()
        code, said = run(place / "t/tag", version)
        told = git(place, "for-each-ref", f"refs/tags/{version}", "--format=%(objecttype) %(*objectname)%0a%(contents)")
        notes = run(place / "t/tag", "--notes", version)[1]
        tap.ok(code == 0 and told.strip() == f"tag {passes}\n{notes}".strip(), "what passes has one, with its notes", said, told)
        tap.ok([line.split()[0] for line in seen.read_text().splitlines()] == ["--test"] * 2
               and str(place) not in seen.read_text().split(), "the trees were run, elsewhere", seen.read_text())
        code, said = run(place / "t/tag", version)
        tap.ok(code == 1 and f"there is a tag {version}" in said, "and is made once", said)
        tap.ok(git(place, "worktree", "list").count("\n") == 1, "nothing is left")
    tap.done()


main()
