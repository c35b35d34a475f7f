# SPDX-License-Identifier: LGPL-2.1-or-later
"""glakectl info: the report and its JSON, with two GPUs, and where the library does not open."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "abi"))
from tap import Tap  # noqa: E402

TOOL = sys.argv[1]
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith("GLAKE_")}


def info(*options, **env):
    done = subprocess.run(
        [TOOL, "info", *options], capture_output=True, text=True, check=False, env=CLEAN | env
    )
    return done.returncode, done.stdout, done.stderr


def whole(tap):
    code, out, err = info("--driver", "soft", "--conf", "soft.memory=3GiB", GLAKE_SOFT_GPUS="2")
    tap.ok(code == 0, "exit status without a GPU", err)
    tap.ok(not err, "nothing on stderr", err)
    for part in ("version", "driver", "gpus", "nodes", "nvidia_uvm", "features", "conf"):
        tap.ok(part in out, f"the report has: {part}", out)
    tap.ok(out.count("3.00 GiB") == 4, "two GPUs of 3 GiB, all free", out)
    tap.ok(re.search(r"^  conf file +/\S+/glake.conf", out, re.M), "which file it would be in", out)
    tap.ok(re.search(r"environment +GLAKE_SOFT_GPUS", out), "where a value comes from", out)
    tap.ok(max(map(len, out.splitlines())) < 200, "lines a terminal can hold", out)


def as_json(tap):
    env = {"GLAKE_SOFT_GPUS": "2"}
    code, out, err = info("--json", "--driver", "soft", "--conf", "soft.memory=3GiB", **env)
    tap.ok(code == 0 and not err, "JSON: exit status", err)
    found = json.loads(out)
    names = ["version", "driver", "gpus", "nodes", "modules", "tools", "features", "conf", "conf_file"]
    tap.ok(list(found) == names, "stable names in a stable order", list(found))
    tap.ok(found["driver"]["name"] == "soft", "the driver", found["driver"])
    tap.ok([gpu["index"] for gpu in found["gpus"]] == [0, 1], "two GPUs")
    tap.ok(found["gpus"][1]["memory_bytes"] == 3 << 30, "of 3 GiB", found["gpus"])
    tap.ok("vmm" in found["gpus"][0]["capabilities"], "what one can do", found["gpus"])
    tap.ok(found["nodes"] and found["nodes"][0]["memory_bytes"], "a node", found["nodes"])
    modules = [module["name"] for module in found["modules"]]
    tap.ok(modules == ["nvidia", "nvidia_uvm"], "both modules", modules)
    tools = found["tools"]
    tap.ok(tools["state"] and tools["text"] and tools["generation"] in ("", "A", "B", "C", "D"),
           "its tools", tools)
    values = {value["key"]: value for value in found["conf"]}
    gpus = values.get("soft.gpus", {})
    tap.ok(gpus.get("origin") == "environment" and gpus.get("value") == "2", "a value", gpus)
    tap.ok(values.get("soft.memory", {}).get("origin") == "option", "and another", values)
    tap.ok(found["conf_file"].endswith("/glake.conf"), "the file", found["conf_file"])
    tap.ok("map.span" not in values or values["map.span"]["origin"] != "default",
           "none at its default", values)
    code, out, err = info("--json", "--all", "--driver", "soft")
    values = {value["key"]: value for value in json.loads(out)["conf"]}
    tap.ok("map.span" in values and len(values) > 10, "all values when asked", values)


def not_opened(tap):
    wrong = ("--driver", "soft", "--conf", "pool.budget=much")
    code, out, err = info(*wrong)
    tap.ok(code == 1 and "pool.budget" in err, "a wrong value: exit status and message", err)
    tap.ok("nodes" in out and "nvidia_uvm" in out, "the rest is shown", out)
    tap.ok("/glake.conf" in out, "and where the configuration would be", out)
    code, out, err = info("--json", *wrong)
    found = json.loads(out)
    tap.ok(code == 1 and found["driver"] is None, "in JSON too", out)
    tap.ok("pool.budget" in found["failure"] and found["nodes"], "with the reason", out)


def features(tap):
    """What is found is what there is, and what is missing has a package."""
    _, out, _ = info("--json", "--driver", "soft")
    rows = json.loads(out)["features"]
    found = {row["name"]: row["found"] for row in rows}
    tap.ok(len(found) > 10 and all(row["build_package"] or row["run_package"] for row in rows),
           "each feature has what brings it", out)
    tap.ok(found["glakectl ps, stat, map"] == bool(shutil.which("python3")), "Python is looked for", out)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "matplotlib.py").touch()
        _, out, _ = info("--json", "--driver", "soft", PYTHONPATH=folder)
        tap.ok({"name": "glakectl report, draw", "found": True} in [
            {key: row[key] for key in ("name", "found")} for row in json.loads(out)["features"]], "and its modules", out)
        _, out, _ = info("--driver", "soft", PATH=folder + ":/nowhere")
        tap.ok(re.search(r"^ +\d+  glakectl report, draw +no +- +python3-matplotlib$", out, re.M), "one that is missing", out)
        tap.ok(re.search(r"^ +\d+  glakectl ps, stat, map +no +- +python3$", out, re.M), "so is Python", out)
    done = subprocess.run([TOOL, "--version"], capture_output=True, text=True, check=False, env=CLEAN)
    rows = done.stdout.splitlines()
    tap.ok(done.returncode == 0 and re.fullmatch(r"glakectl \d+\.\d+\.\d+", rows[0]) and [
        re.split("  +", row)[2] for row in rows[4:]] == list(found), "--version has them behind its own line", done.stdout)
    again = subprocess.run([TOOL, "version"], capture_output=True, text=True, check=False, env=CLEAN)
    tap.ok((again.returncode, again.stdout) == (0, done.stdout), "and so has version", again.stderr)


def misuse(tap):
    for options in (("--no-such",), ("stray",), ("--driver", "gpu"), ("--conf", "x"), ("-c",)):
        code, out, err = info(*options)
        tap.ok(code == 2 and err and not out, f"wrong usage: {' '.join(options)}", out, err)
    code, out, err = info("--help")
    tap.ok(code == 0 and "--json" in out and not err, "help")


def main():
    tap = Tap()
    whole(tap)
    as_json(tap)
    not_opened(tap)
    features(tap)
    misuse(tap)
    tap.done()


main()
