# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The engine of t/examples/engine on the software device, with a tiny model on the CPU: all its caches give the same
tokens, with sequences that go and come back, forks and adopted prefixes or nothing shared; in float64, so that no two
tokens are as good as each other by rounding. Then its other parts, to see that they run, and requests by a planner, whose
layers leave and come back or not, with the same tokens; nothing is live at the end.

    engine.py SOURCE PLUGIN [ENVIRONMENT]
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../flow"))
import tap  # noqa: E402

SOURCE, PLUGIN = map(os.path.abspath, sys.argv[1:3])
PACKAGES = os.path.join(sys.argv[3], "bin/python3") if sys.argv[3:] else sys.executable
PACKAGES = PACKAGES if os.path.exists(PACKAGES) else sys.executable
ENGINE = os.path.join(HERE, "../examples/engine")
ENV = {**os.environ, "GLAKE_DRIVER_BACKEND": "soft", "GLAKE_LIBRARY_PATH": os.path.dirname(PLUGIN),
       "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1"}
RUN = ("import runpy, sys, glake\n"
       "try:\n"
       f"    runpy.run_path({ENGINE!r}, run_name='__main__')\n"
       "except SystemExit as end:\n"
       "    print('ended', end.code, 'live', glake.stats(0)['live'])\n")
CACHES = ["concat", "concat-packed", "static", "paged-own", "glake", "glake-layer", "glake-host"]
SHARED = ["paged-own", "glake", "glake-layer"]


def ran(*arguments, **env):
    """What the engine told, and its figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures.json")
        done = subprocess.run([PACKAGES, "-c", RUN, "--device", "cpu", "--json", path, *arguments], env={**ENV, **env},
                              capture_output=True, text=True, check=False, timeout=tap.HUNG)
        tap.ok("ended 0 live 0\n" in done.stdout, "it ends well, and nothing is live", done.stdout, done.stderr[-2000:])
        tap.ok("glake" not in done.stderr, "the library warns of nothing", done.stderr[-2000:])
        if not os.path.exists(path):
            return done.stdout, {}
        with open(path, encoding="utf-8") as file:
            return done.stdout, json.load(file)


def check_all():
    said, told = ran("--equal-dtype", "float64", "--apart", "--caches", ",".join(CACHES), "--rounds", "1", "--seconds", "0.2",
                     "--warm", "0.1", "--memory", "64MiB", "--prefix", "1024", "--behind", "8")
    rows = told.get("equal", {})
    for name in CACHES + [f"{name} apart" for name in SHARED]:
        row = rows.get(f"float64 {name}", {})
        tap.equal([row.get(key) for key in ("equal", "ties", "wrong", "of")], [30, 0, 0, 30], f"{name}: equal tokens")
    for name in SHARED:
        row = rows.get(f"float64 {name}", {})
        tap.ok(row.get("adopted", 0) > 0 and row.get("forked", 0) > 0, f"{name}: adopted and forked", row)
    row = rows.get("float64 glake-host", {})
    tap.ok(row.get("forked", 0) > 0 and row.get("most_far", 0) > 100, "with the first tokens on the host, forks too", row)
    for name in ("concat", "paged-own", "glake"):
        row = rows.get(f"float64 {name}", {})
        tap.ok(row.get("preempted", 0) > 0, f"{name}: some went and came back", row)
    for name in SHARED:
        row = told.get("sharing", {}).get(name, {})
        tap.ok(row.get("running") == 8 and row.get("share", 0) >= 0.98, f"{name}: a beginning is there once", row)
    rates = [told.get("speed", {}).get(name, [{}])[0].get("tokens_s", 0) for name in CACHES]
    tap.ok(min(rates) > 0, "each cache has a speed", rates)
    tap.has(said, "glake / paged-own, at_a_time", "they are compared")
    tap.has(said, "glake / paged-own, admitted", "by who has room, too")


def check_flex():
    """Which on the CPU looks at all blocks of the pool for each sequence: two of them at a time."""
    _, told = ran("--only", "equal", "--equal-dtype", "float64", "--caches", "glake,paged", "--equal-requests", "6",
                  "--equal-slots", "2", "--equal-most", "64")
    row = told.get("equal", {}).get("float64 paged", {})
    tap.ok(row.get("way") == "flex" and row.get("equal") == row.get("of") == 8, "paged, flex attention: equal tokens", row)


def check_layers():
    """Times are those that the planner reckons with."""
    said, told = ran("--layers", "--dtype", "float64")
    row = told.get("burst", {})
    first, layers = (row.get("rows", {}).get(name, {}) for name in ("first", "layers"))
    tap.ok(row.get("tokens") is True and first.get("requests") == layers.get("requests", 0) >= 4,
           "a burst: equal tokens with layers that leave and without", row)
    tap.ok(layers.get("prompts_away", 0) >= 2 and layers.get("layers_moved", 0) >= 4 and first.get("prompts_away") == 0,
           "some left and came back", layers)
    tap.equal([layers.get("layers_late"), layers.get("planner", {}).get("used"), layers.get("planner", {}).get("renegotiated")],
              [0, 0, 0], "in time, and no promise was broken")
    tap.ok(layers.get("planner", {}).get("out", 0) == layers.get("planner", {}).get("back", 1), "all that went came", layers)
    tap.has(said, "equal tokens and layers", "a long prompt with the memory of a few layers")
    tap.ok(told.get("prompt", {}).get("layers", {}).get("held_most", 1 << 40) * 5 <= told.get("prompt", {}).get("whole", {}).get("held_most", 0),
           "which is a fifth at the most", told.get("prompt"))
    said, told = ran("--layers", "--only", "burst", "--dtype", "float64", "--burst-memory", "24MiB", "--prompts", "128", "512", "--outputs",
                     "24", "40", GLAKE_DRIVER_FAULT="copy:every=5:err=EIO")
    row = told.get("burst", {})
    tap.ok(row.get("tokens") is True and row.get("rows", {}).get("layers", {}).get("copies_failed", 0) > 0,
           "where copies fail they are tried again: equal tokens", row, said)


def main():
    find = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('torch'))"
    if subprocess.run([PACKAGES, "-c", find], check=False, env=ENV).returncode:
        print("1..0 # SKIP no PyTorch here: see t/doors/meson.build")
        return
    tap.start()
    check_all()
    check_flex()
    check_layers()
    tap.done()


main()
