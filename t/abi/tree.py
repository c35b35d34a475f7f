# SPDX-License-Identifier: LGPL-2.1-or-later
"""The files of the project: what git tracks, or without git what lies there."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_OURS = (".git", ".cache", ".bundle", "__pycache__", "build")


def files():
    """Paths below ROOT, as text with slashes, that exist."""
    names = []
    if shutil.which("git"):
        git = ["git", "-C", ROOT, "ls-files", "-z"]
        listed = subprocess.run(git, capture_output=True, check=False).stdout
        names = listed.decode().split("\0")
    if not any(names):
        for folder, below, here in os.walk(ROOT):
            below[:] = [name for name in below if not name.startswith(NOT_OURS)]
            names += [os.path.relpath(os.path.join(folder, name), ROOT) for name in here]
    return sorted(name for name in names if name and (ROOT / name).is_file())


def text(name):
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")
