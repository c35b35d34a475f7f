#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
PyTorch's own tests of what an allocator has to do with, run with glake as the allocator.

    torch_suite.py FOLDER [--files A,B] [--only REGEX] [--each S] [--limit S] [--json FILE]
    torch_suite.py FOLDER --list

FOLDER is the folder `test` of PyTorch's sources, of the version that is installed: wheels have no
tests. They need expecttest and psutil. Tests run one after the other in a process that glake.use()
was called in when Python started, as in all that it starts itself; one that takes longer than
--each or crashes ends its process, and the rest goes on in a new one. What fails is run again
with PyTorch's allocator and, if it passes there, alone with glake, so that it can be told what
glake has to do with it.
Tests that assert how PyTorch's own allocator works inside are left out: --list says which and why.
"""

import argparse
import collections
import contextlib
import importlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))

# What to run, as Class.test in a file: whole files, and of sharing between processes what has to do with
# GPUs.
CHOSEN = {
    "test_cuda.py": r".*",
    "test_cuda_multigpu.py": r".*",
    "test_cuda_primary_ctx.py": r".*",
    "test_multiprocessing.py": r".*\.test_(.*cuda.*|event.*|.*_gpu.*)",
    "inductor/test_cudagraph_trees.py": r".*",
}
# Why some of those do not apply: the first that fits says it.
OTHER = collections.OrderedDict((
    (r"test_(nvml|temperature|power_draw|clock_speed|raw_|uuid)", "nothing to do with memory"),
))

# What is expected to fail, and why that is as it should be.
SOONER = "wants other memory while another stream uses what was freed; glake gives that again " \
         "at once, behind a wait"
KNOWN = {
    "test_record_stream": SOONER, "test_record_stream_on_shifted_view": SOONER,
    "test_cuda_graph_allocator_propagates_stream":
        "wants a segment a stream in the pool of a graph; there, one stretch of addresses is of all",
}

# What every Python of the run does first. Nothing of it begins to use CUDA.
START = """
import os
if os.environ.get("GLAKE_SUITE"):
    import glake
    glake.use()
"""
BAD = ("failed", "crashed", "hung")
BEGAN, ENDED = "began", "ended"
AHEAD = 8  # processes that are made ready at once


def fate(file, name):
    """None to run it, else why not; an empty string if nobody asked for it."""
    if not re.fullmatch(CHOSEN[file], name, re.X):
        return ""
    return next((why for what, why in OTHER.items() if re.search(what, name)), None)


class Told(unittest.TestResult):
    """Says over a pipe how it goes."""

    def __init__(self, say, after):
        super().__init__()
        self.say, self.after, self.bad, self.why = say, after, "", ""

    def startTest(self, test):
        super().startTest(test)
        self.bad, self.why = "passed", ""
        self.say(state=BEGAN, test=named(test))

    def stopTest(self, test):
        super().stopTest(test)
        self.say(state=ENDED, test=named(test), outcome=self.bad, why=self.why)
        if self.bad == "failed":
            self.after()

    def worse(self, outcome, error):
        self.bad = outcome
        text = str(error[1]).partition("To execute this test")[0].strip()  # what PyTorch adds
        self.why = (text or error[0].__name__).replace("\n", " ")[:400]

    def addError(self, test, err):
        self.worse("failed", err)

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err:
            self.worse("failed", err)

    def addSkip(self, test, reason):
        self.bad, self.why = "skipped", reason

    def addExpectedFailure(self, test, err):
        self.bad = "passed"

    def addUnexpectedSuccess(self, test):
        self.worse("failed", (None, "passes, and is expected not to"))


def named(test):
    return ".".join(test.id().split(".")[-2:])


def flat(suite):
    for part in suite:
        if isinstance(part, unittest.TestCase):
            yield part
        else:
            yield from flat(part)


def child(folder, file, pipe):
    """Runs the tests whose names come in, or says which there are."""
    def say(**what):
        os.write(pipe, json.dumps(what).encode() + b"\n")

    def alive():
        """A GPU that a test has broken is broken for all later ones."""
        try:
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
        except RuntimeError:
            os._exit(3)

    import torch
    if os.environ.get("GLAKE_SUITE") and torch.cuda.get_allocator_backend() != "glake":
        raise SystemExit("glake is not the allocator")
    os.chdir(folder)
    sys.path[:0] = [folder, os.path.dirname(os.path.join(folder, file))]
    sys.argv = [file]
    module = importlib.import_module(os.path.basename(file)[:-3])
    tests = {named(test): test for test in flat(
        unittest.defaultTestLoader.loadTestsFromModule(module))}
    say(tests=sorted(tests))
    # a suite, for what classes do before and after their tests
    unittest.TestSuite(tests[name] for name in json.load(sys.stdin)).run(Told(say, alive))
    os._exit(0)


class Run:
    """Processes that run tests of a file, one after the other."""

    def __init__(self, args, file, glake, scratch, until):
        self.args, self.file, self.glake, self.scratch = args, file, glake, scratch
        self.until, self.count, self.last = until, 0, ""

    def start(self):
        """One that imports what it needs and then waits for names."""
        ours, theirs = os.pipe()
        env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, [
            self.scratch, HERE, os.path.join(HERE, "../../lib/python"),
            os.environ.get("PYTHONPATH")])), CI="", PYTORCH_TESTING_DEVICE_ONLY_FOR="cuda")
        env.pop("GLAKE_SUITE", None)
        if self.glake:
            env["GLAKE_SUITE"] = "1"
        self.count += 1
        with open(os.path.join(self.scratch, f"{self.count}{self.glake}"), "wb") as said:
            process = subprocess.Popen(
                [sys.executable, os.path.abspath(__file__), "--child", self.args.folder, self.file,
                 str(theirs)], env=env, stdin=subprocess.PIPE, stdout=said,
                stderr=subprocess.STDOUT, pass_fds=[theirs], start_new_session=True)
        os.close(theirs)
        process.said = said.name
        return process, ours

    def said(self):
        with open(self.last, encoding="utf-8", errors="replace") as file:
            return (file.read().strip().splitlines() or ["it said nothing"])[-1][:400]

    def lines(self, names, started=None):
        """What one process says; at the end how it ended."""
        process, pipe = started or self.start()
        self.last = process.said
        rest, limit = b"", self.args.imports
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin as names_to:
                names_to.write(json.dumps(names).encode())
            while True:
                limit = max(min(limit, self.until - time.monotonic()), 0)
                if not select.select([pipe], [], [], limit)[0]:
                    yield {"late": limit}
                    return
                part = os.read(pipe, 65536)
                if not part:
                    yield {"gone": process.wait()}
                    return
                *whole, rest = (rest + part).split(b"\n")
                for line in whole:
                    limit = self.args.each
                    yield json.loads(line)
        finally:
            os.close(pipe)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it has started
            process.wait()

    def names(self):
        line = {}
        for line in self.lines([]):
            if "tests" in line:
                return line["tests"]
        raise RuntimeError(f"{self.file} cannot be loaded: {line}: {self.said()}")

    def all(self, names, told, started=None):
        """Runs them all, whatever they do; told(name, outcome, why, seconds) for each."""
        left = list(names)
        while left:
            if time.monotonic() > self.until:
                for name in left:
                    told(name, "not run", "no time was left", 0)
                return
            at, began, before, line = None, 0, len(left), {}
            for line in self.lines(left, started):
                if line.get("state") == BEGAN:
                    at, began = line["test"], time.monotonic()
                elif line.get("state") == ENDED:
                    left.remove(at)
                    told(at, line["outcome"], line["why"], time.monotonic() - began)
                    at = None
                elif at and ("late" in line or "gone" in line):
                    left.remove(at)
                    told(at, "hung" if "late" in line else "crashed",
                         f"ended after {line['late']:.0f} s" if "late" in line else
                         f"status {line['gone']}: {self.said()}", time.monotonic() - began)
            started = None
            if len(left) == before:
                for name in left:
                    told(name, "not run", f"{line}: {self.said()}", 0)
                return


def run_file(args, file, scratch, until, results):
    with_glake = Run(args, file, True, scratch, until)
    names = with_glake.names()
    fates = {name: fate(file, name) for name in names}
    for name, why in fates.items():
        if why:
            results[f"{file} {name}"] = {"outcome": "does not apply", "why": why}
    wanted = [name for name, why in fates.items() if why is None
              and re.search(args.only or "", name)]

    def told(name, outcome, why, seconds):
        results[f"{file} {name}"] = {"outcome": outcome, "why": why, "s": round(seconds, 2)}
        if outcome not in ("passed", "skipped"):
            print(f"# {name}: {outcome}: {why[:160]}", flush=True)
        save(args, results)

    with_glake.all(wanted, told)
    bad = [name for name in wanted
           if results[f"{file} {name}"]["outcome"] in BAD]
    again(Run(args, file, False, scratch, until), "PyTorch's", bad, False, results)
    again(with_glake, "alone", [name for name in bad if results[f"{file} {name}"].get(
        "PyTorch's", "passed") == "passed"], True, results)
    save(args, results)


def again(run, key, names, alone, results):
    """What did not pass once more, each in a process of its own or all in one."""
    def told(name, outcome, why, _):
        results[f"{run.file} {name}"].update({key: outcome, key + " why": why})

    if not alone:
        run.all(names, told)
    while alone and names:
        some, names = names[:AHEAD], names[AHEAD:]
        ready = [run.start() for _ in some]  # they import side by side
        for name, started in zip(some, ready):
            run.all([name], told, started)


def save(args, results):
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)


def final(name, row):
    """How it stands with a test, all runs taken together."""
    if row.get("alone") == "passed":
        return "passed alone"
    if row.get("PyTorch's") in BAD:
        return "fails without glake too"
    if row["outcome"] == "failed" and name.split(".")[-1] in KNOWN:
        return "fails, as is known"
    return row["outcome"]


def show(results):
    print("\n| test | outcome | why |\n|---|---|---|")
    finals = {name: final(name, row) for name, row in results.items()}
    sums = collections.Counter(finals.values())
    for name, row in results.items():
        if finals[name] not in ("passed", "skipped", "does not apply"):
            why = KNOWN.get(name.split(".")[-1]) or row.get("alone why") or row["why"]
            print(f"| {name.split()[1]} | {finals[name]} | {why[:200].replace('|', '/')} |")
    for outcome in ("skipped", "does not apply"):
        whys = collections.defaultdict(list)
        for name, row in results.items():
            if finals[name] == outcome:
                whys[row["why"]].append(name.split(".")[-1])
        for why, names in whys.items():
            print(f"| {len(names)}: {', '.join(names[:6])}{' ...' * (len(names) > 6)} | {outcome} "
                  f"| {why[:200].replace('|', '/')} |")
    print("\n" + ", ".join(f"{count} {outcome}" for outcome, count in sums.most_common()))
    return not sum(sums[bad] for bad in (*BAD, "not run"))


def main():
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("folder")
    parser.add_argument("--files", default=",".join(CHOSEN))
    parser.add_argument("--only", help="tests whose Class.test has this in it")
    parser.add_argument("--each", type=float, default=60, help="s that one test may take")
    parser.add_argument("--imports", type=float, default=120, help="s to begin in")
    parser.add_argument("--limit", type=float, default=1e6, help="s for all")
    parser.add_argument("--list", action="store_true", help="what would run and what not, and why")
    parser.add_argument("--json")
    args = parser.parse_args()
    args.folder = os.path.abspath(args.folder)
    until, results = time.monotonic() + args.limit, {}
    with tempfile.TemporaryDirectory() as scratch:
        with open(os.path.join(scratch, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write(START)
        for file in args.files.split(","):
            if not os.path.exists(os.path.join(args.folder, file)):
                print(f"# {file} is not in {args.folder}")
            elif args.list:
                for name in Run(args, file, True, scratch, until).names():
                    why = fate(file, name)
                    print(f"{file} {name}: {'not chosen' if why == '' else why or 'runs'}")
            else:
                try:
                    run_file(args, file, scratch, until, results)
                except RuntimeError as error:
                    print(f"# {error}")
                    results[f"{file} all"] = {"outcome": "not run", "why": str(error)}
    return 0 if args.list or show(results) and results else 1


if __name__ == "__main__":
    sys.exit(main())
