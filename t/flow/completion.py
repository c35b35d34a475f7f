#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Completion of glakectl: what bash and zsh offer is what the tool's option tables have, the tool
takes each of it, and every key of the configuration is there with its values.
"""
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tap import TOOL, done, equal, has, ok, skip, start, tool

ROOT = Path(__file__).resolve().parents[2]
BASH = ROOT / "lib/tool/glakectl.bash"
ZSH = ROOT / "lib/tool/_glakectl"
ASK_BASH = r"""
compopt() { :; }
source "$1"
COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDS=("$3") COMP_CWORD=0
_glakectl
(( ${#COMPREPLY[@]} == 0 )) || printf '%s\n' "${COMPREPLY[@]}"
"""
# The functions of zsh's own that only work while somebody types, as what they are given.
ASK_ZSH = r"""
words=(${(s: :)2} '') CURRENT=$#words PREFIX=$3
compadd() { print -rl -- ${(P)@[-1]} }
compset() { [[ $PREFIX == *=* ]] }
_describe() { print -rl -- ${(P)2} }
_arguments() { print -rl -- "$@"; _glakectl_rest }
_files() { print FILES }
source $1
[[ -z $3 ]] || { tool=$4; _glakectl_keys set }
"""


def bash(line):
    """What bash offers behind a line."""
    run = subprocess.run(["bash", "--norc", "-c", ASK_BASH, "ask", BASH, f"glakectl {line}", TOOL],
                         capture_output=True, text=True, check=False)
    ok(run.returncode == 0 and not run.stderr, f"bash: glakectl {line}", run.stderr)
    return run.stdout.split()


def zsh(line, prefix=""):
    """
    The same for zsh: candidates, or what it gives to _arguments and offers behind the options;
    with a prefix also what it offers for a setting.
    """
    run = subprocess.run(["zsh", "-f", "-c", ASK_ZSH, "ask", ZSH, f"{TOOL} {line}".strip(), prefix,
                          TOOL], capture_output=True, text=True, check=False)
    ok(run.returncode == 0 and not run.stderr, f"zsh: glakectl {line}", run.stderr)
    return run.stdout.splitlines()


def commands():
    text = tool("--help").stdout.decode()
    return re.findall(r"^  ([a-z]+)  ", text.split("Commands:")[1], re.M)


def subcommands(command):
    text = tool(command, "--help").stdout.decode()
    return re.findall(rf"glakectl {command} ([a-z]+) ", text)


def tables(command):
    """Names in the option tables of a command's files, and whether they take something."""
    found = {}
    for path in sorted((ROOT / "lib/tool").glob(f"{command}*.c")):
        rows = re.findall(r'\{"([a-z-]+)", (no|required)_argument', path.read_text(encoding="utf-8"))
        found |= {f"--{name}": kind == "required" for name, kind in rows}
    if not found:  # a module, which reads its options from its help
        rows = re.findall(r"^  -., --([a-z-]+)( \S+)?", tool(command, "--help").stdout.decode(), re.M)
        found = {f"--{name}": bool(takes) for name, takes in rows}
    return found


def modules(command):
    """The same of a subcommand that is a module."""
    rows = re.findall(r"^  -., --([a-z-]+)( \S+)?", tool("trace", "record", "--help").stdout.decode(), re.M)
    return {f"--{name}": bool(takes) for name, takes in rows} if command == "trace" else {}


# What is no plain number.
TAKES = {"--for": "1s", "--size": "1MiB", "--from": "1s", "--to": "1s", "--events": "1-2"}


def check_taken(words, offered, wanted):
    """What is offered is taken, and what it takes is offered where there is a list of it."""
    given = []
    for option in offered:
        given.append(option)
        if wanted.get(option):
            values = bash(" ".join([*words, option, ""]))
            given.append("pool.budget=1GiB" if "pool.budget=" in values else (values + [TAKES.get(option, "1")])[0])
    run = tool(*words, *given, "--help")
    equal(run.returncode, 0, f"glakectl {' '.join([*words, *given])} is taken")


def check_options(command):
    wanted, all_offered = tables(command) | modules(command), set()
    subs = subcommands(command)
    for sub in subs or [""]:
        words = [command] + [sub] * bool(sub)
        offered = bash(" ".join([*words, "--"]))
        check_taken(words, [option for option in offered if option != "--help"], wanted)
        for option in sorted(set(wanted) - set(offered)):
            run = tool(*words, option, *["1"] * wanted[option])
            equal(run.returncode, 2, f"glakectl {' '.join(words)} refuses {option}, not offered")
        all_offered |= set(offered)
        if shutil.which("zsh"):
            given = "\n".join(zsh(" ".join(words)))
            specs = re.findall(r"^(?:\*|\([^)]*\))(--[a-z-]+)(=?)\[", given, re.M)
            equal(sorted(specs), sorted((name, "=" * wanted[name]) for name in offered),
                  f"zsh offers the same for {' '.join(words)}")
    equal(sorted(all_offered), sorted(wanted), f"{command}: its table is offered, and no more")
    if subs:
        equal(sorted(bash(f"{command} ")), sorted(subs), f"{command}: its subcommands")


def check_keys():
    rows = json.loads(tool("conf", "show", "--default", "--json").stdout)
    keys = [f"{row['section']}.{row['key']}" for row in rows if not row["test"]]
    ok(len(keys) < len(rows), "keys of tests are not offered")
    ok(len(keys) > 20, f"{len(keys)} keys")
    equal(bash("replay --conf "), [f"{key}=" for key in keys], "all are offered to be set")
    equal(bash("conf show "), keys, "and to be shown")
    equal(bash("conf explain "), keys, "and explained")
    equal(bash("replay -c pool.b"), ["pool.budget="], "of a beginning its own")
    for line in ("replay -c driver.backend=", "replay --conf=driver.backend="):
        equal(bash(line), ["auto", "soft", "cuda"], f"{line}: the values")
    equal(bash("info -c tier.verify=y"), ["yes"], "of a switch too")
    equal(bash("info -c pool.budget="), [], "there is no list of sizes")
    if shutil.which("zsh"):
        equal(zsh("conf show")[-len(keys) :], keys, "zsh: to be shown")
        equal(zsh("", "pool")[-len(keys) :], keys, "to be set")
        equal(zsh("", "driver.backend=")[-3:], ["auto", "soft", "cuda"], "the values of one")
        equal(zsh("replay")[-2:], ["*:argument:_glakectl_rest", "FILES"], "files")


def check_words(folder):
    for name in ("one.trace", "two words.csv"):
        Path(folder, name).touch()
    os.chdir(folder)
    equal(sorted(bash("")), sorted(["--help", "--version", *commands()]), "the commands")
    equal(bash("repl"), ["replay"], "one by its beginning")
    equal(bash("replay on"), ["one.trace"], "a file")
    equal(bash("replay --timeline=on"), ["one.trace"], "behind an option too")
    for words in ("stat", "trace record", "snapshot"):
        equal(bash(f"{words} on"), [], f"{words}: a process, and no file")
    equal(bash("replay --driver s"), ["soft"], "a driver")
    equal(bash("replay --repeat "), [], "no numbers")
    equal(bash("nonsense --"), [], "of no command nothing")
    has(" ".join(bash("bench ")), "alloc stitch tier", "the parts of bench")
    equal(bash("bench sti"), ["stitch"], "one of them")


def check_places():
    """Where the shells look, by meson's own list."""
    build = Path(TOOL).resolve().parents[2]
    if not shutil.which("meson") or not (build / "build.ninja").exists():
        skip("where the files are installed", "the tool lies in no build folder, or no meson")
        return
    said = subprocess.run(["meson", "introspect", "--installed", build], capture_output=True,
                          text=True, check=True).stdout
    for place in ("/bash-completion/completions/glakectl", "/zsh/site-functions/_glakectl"):
        has(said, f'{place}"', f"installed as {place}")


def main():
    start()
    check_places()
    check_words(tempfile.mkdtemp())
    for command in commands():
        check_options(command)
    check_keys()
    if not shutil.which("zsh"):
        skip("zsh", "zsh is not installed")
    done()


main()
