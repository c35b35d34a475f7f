# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glake-recipes(7): what the page tells to write is right, and what can run without a GPU and without others' packages is
run, as it stands there. Each recipe tells how to see it, what it costs and when not to.
"""
import ast
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tap import HUNG, TOOL, clean, done, equal, has, note, ok, start

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "lib/man/glake-recipes.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)( run)?\n(.*?)^```$", re.S | re.M)
NAMES = ("PyTorch", "DDP and FSDP", "DeepSpeed", "Megatron", "vLLM", "SGLang", "JAX", "RMM and cuDF", "CuPy", "numba",
         "TensorFlow", "MPI", "NCCL registration", "UCX", "Docker", "Podman", "Kubernetes", "Slurm", "MIG", "MPS")


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=HUNG, **more)


def of_kind(kind):
    found = [(is_run, text) for name, is_run, text in BLOCK.findall(TEXT) if name == kind]
    ok(found, f"{len(found)} of {kind}")
    return found


def check_parts():
    heads = re.split(r"^##+ ", BLOCK.sub("", TEXT), flags=re.M)[1:]
    told = {head.split("\n", 1)[0]: head for head in heads}
    equal([name for name in NAMES if name not in told], [], f"{len(NAMES)} recipes")
    equal([(name, part) for name, text in told.items() for part in ("**See:**", "**Costs:**", "**Not:**")
           if name != "Before anything else" and part not in text], [], "each with all its parts")


def check_keys(folder):
    """What is set, anywhere on the page, is a key, and takes that value."""
    env = dict(re.findall(r"\b(GLAKE_[A-Z]+_[A-Z_]+)[=\s](?!-)\"?([^\s\"$]+)", TEXT))
    env |= dict(re.findall(r"name: (GLAKE_[A-Z_]+)\n +value: \"?([^\"\n]+)", TEXT))
    for key, value in re.findall(r"(?:-c |\")([a-z]+\.[a-z_]+)(?:=|\": \")([^\s\"]+)", TEXT):
        env["GLAKE_" + key.upper().replace(".", "_")] = value
    rows = json.loads(run(TOOL, "conf", "show", "--default", "--json").stdout)
    known = {f"GLAKE_{row['section']}_{row['key']}".upper() for row in rows}
    ok(len(env) > 5, f"{len(env)} keys are set", env)
    equal(sorted(set(env) - known), [], "which there are")
    checked = run(TOOL, "conf", "check", env={**clean(), **env})
    equal(checked.returncode, 0, "with values that they take")
    note(checked.stdout + checked.stderr)
    for i, (_, text) in enumerate(of_kind("ini")):
        path = Path(folder, f"{i}.conf")
        path.write_text(text, encoding="ascii")
        checked = run(TOOL, "conf", "check", path, env=clean())
        equal((checked.returncode, checked.stderr), (0, ""), "a configuration is right")


def check_rooms():
    """A tmpfs, a volume and /tmp are open to all, and the directory of sockets is not made in such."""
    for _, _, text in BLOCK.findall(TEXT):
        if "XDG_RUNTIME_DIR" in text:
            has(text, "mkdir -p -m 700 $XDG_RUNTIME_DIR", "the directory of sockets is the user's alone")


def check_shell(folder):
    helps = {}
    shutil.copy(shutil.which("true"), os.path.join(folder, "program"))
    env = {**clean(), "PATH": f"{os.path.dirname(TOOL)}:{os.environ['PATH']}", "GLAKE_DRIVER_BACKEND": "soft"}
    for is_run, text in of_kind("sh"):
        equal(run("sh", "-n", "-c", text).stderr, "", text.split("\n")[0])
        for command, words in re.findall(r"\bglakectl ([a-z]+)([^#|\n]*)", text):
            if command not in helps:
                helps[command] = run(TOOL, command, "--help").stdout
                ok(helps[command], f"there is {command}")
            for option in re.findall(r"(?<= )--[a-z-]+|(?<= )-[a-z](?= )", words.split(" ./")[0].split(" python3")[0]):
                has(helps[command], option, f"{command} takes {option}")
        if is_run:
            did = run("sh", "-ec", text, env=env, cwd=folder)
            equal(did.returncode, 0, "which runs")
            note(did.stderr)


def check_python():
    sys.path.insert(0, str(ROOT / "lib/python"))
    import glake
    wrong = []
    for _, text in of_kind("python"):
        for call in ast.walk(ast.parse(text)):
            if not isinstance(call, ast.Call) or not ast.unparse(call.func).startswith("glake."):
                continue
            function = getattr(glake, call.func.attr, None)
            try:
                inspect.signature(function).bind(*call.args, **{word.arg: word for word in call.keywords})
            except TypeError as error:
                wrong.append(f"{ast.unparse(call)}: {error}")
    equal(wrong, [], "functions take what they are given")
    named = set(re.findall(r"\bglake\.([a-z_]+)\(", TEXT))
    equal(sorted(name for name in named if not hasattr(glake, name)), [], f"{len(named)} functions of Python")


def check_c(folder):
    lib = Path(TOOL).resolve().parents[1]
    for is_run, text in of_kind("c"):
        Path(folder, "recipe.c").write_text(text, encoding="ascii")
        made = run("cc", "-Wall", "-Werror", f"-I{ROOT}/include", f"-I{lib.parent}/include", "recipe.c", "-o", "recipe", f"-L{lib}",
                   "-lglake", f"-Wl,-rpath,{lib}", cwd=folder)
        equal((made.returncode, made.stderr), (0, ""), "a program in C")
        if is_run:
            did = run(f"{folder}/recipe", env={**clean(), "GLAKE_DRIVER_BACKEND": "soft"})
            equal((did.returncode, did.stderr), (0, ""), "which runs")
    for _, text in of_kind("cpp"):
        for name in re.findall(r"#include <(glake/.*)>", text):
            ok((ROOT / "include" / name).exists(), name)


def main():
    start()
    check_parts()
    check_rooms()
    event = re.search(r"(\d+) an event", run(TOOL, "conf", "explain", "trace.size").stdout)
    ok(event and f"a trace has {event[1]} bytes for each event" in TEXT, "a trace is as large as its key says", event)
    with tempfile.TemporaryDirectory() as folder:
        check_keys(folder)
        check_shell(folder)
        check_c(folder)
    check_python()
    done()


main()
