# SPDX-License-Identifier: LGPL-2.1-or-later
"""python3 -m glake: a program as it is, with its tensors on glake; --info: what was loaded from where."""

import os
import runpy
import sys

import glake


def main(arguments):
    """Runs a program with its tensors on glake."""
    sys.argv = arguments[arguments[:1] == ["-m"]:]
    try:
        if arguments == ["--info"]:
            sys.exit(print(*(f"{name}: {value}" for name, value in glake.info().items()), sep="\n"))
        if not sys.argv or sys.argv[0].startswith("-"):
            sys.exit("usage: python3 -m glake [--info | [-m MODULE | SCRIPT] [ARGUMENT...]]")
        glake.use()
    except glake.GlakeError as error:
        sys.exit(f"glake: {error}")
    if arguments[0] == "-m":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
