#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Plants mistakes in the core of the library, one at a time, and says which of them no test notices.

The work folder holds a copy of the tree, a build of it that counts which lines run, and what was
found so far: a run goes on where the last one stopped. Nothing is written into the tree. The build
has the gate's address and undefined behaviour sanitizers, whose reports end a test with an error.
A process plants one mistake in a layer above copy and build that only it sees (an overlay in a mount
namespace), which is gone when it ends; so -j plants as many at once.

    reach.json     one line a test: how long it took, and which lines of the core it ran
    results.json   one entry a mistake

A mistake is drawn by a fixed seed, each kind as often as the others, from the lines that some test
runs. Only the tests that run the line are tried, and the one that has the name of the file, whose
children may: first those that are named after it, then those of its folder, then those that run most
of the file in their time. A test that fails or hangs twice has noticed it. A mistake that does not
compile is drawn again, and so is a store whose loss the compiler itself would tell of.

What nobody can notice, since the program does the same with it, stands in t/mistakes.equal, judged
by hand, and is counted apart. When the sources of the library change everything is found anew;
when tests change only the mistakes that went unnoticed are planted again. --again makes a test
that has changed say anew which lines it runs.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import ctypes
import hashlib
import json
import multiprocessing
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True  # in the tree

from mistakes_find import drawn, edited, key_of, mistakes_of, shown  # noqa: E402

TREE = Path(__file__).resolve().parents[1]
CORE = ("lib/api/", "lib/base/", "lib/cache/", "lib/kv/", "lib/map/", "lib/move/", "lib/pool/", "lib/share/", "lib/stream/",
        "lib/tier/", "numa/")
SUITES = {"glake:unit", "glake:flow", "glake:stress", "glake:abi"}
OPTIONS = ["-Db_coverage=true", "-Doptimization=1", "-Ddebug=false", "-Dmodels=false",
           # beside counts gcc lays frames askew that have to be aligned, as those of xxhash
           "-Db_sanitize=address,undefined", "-Dc_args=-fno-sanitize=alignment", "-Db_lundef=false"]
SEED = "20261123"  # of the tests, so that a test runs the same lines each time
SANITIZERS = {  # as in .ci/run
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
    "LSAN_OPTIONS": f"use_tls=0:suppressions={TREE}/t/lsan.supp:print_suppressions=0",
    "UBSAN_OPTIONS": "halt_on_error=1"}
TEXTS = (".md", ".1", ".3", ".7")  # which change nothing
NEW_MOUNTS, NEW_USER, PRIVATE = 0x20000, 0x10000000, 1 << 18 | 1 << 14  # of unshare and mount


class Out(Exception):
    """No minutes are left."""


def apart(what, *args):
    """What a function says, or raises, in a process of its own."""
    def child():
        try:
            there.send(what(*args))
        except Exception as error:  # pylint: disable=broad-exception-caught
            there.send(error)

    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    process = fork.Process(target=child)
    process.start()
    there.close()
    result = here.recv()
    process.join()
    if isinstance(result, Exception):
        raise result
    return result


@contextlib.contextmanager
def workers(jobs):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        try:
            yield pool
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()


@contextlib.contextmanager
def layer(folder, names):
    """What this process and its children write below folders of these names is seen by them alone, and
    not kept."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(what, *args):
        if what(*args):
            error = ctypes.get_errno()
            raise OSError(error, f"no layer above {folder}, which takes root or namespaces of users: "
                          f"{os.strerror(error)}")

    upper, user, group = folder / "layers" / str(os.getpid()), os.geteuid(), os.getegid()
    call(libc.unshare, NEW_MOUNTS | (NEW_USER if user else 0))
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"),
                           ("gid_map", f"{group} {group} 1")):
            Path(f"/proc/self/{name}").write_text(text, encoding="ascii")
    call(libc.mount, None, b"/", None, PRIVATE, None)
    for name in names:
        for part in ("up", "work"):
            (upper / name / part).mkdir(parents=True)
        data = (f"lowerdir={folder / name},upperdir={upper / name}/up,workdir={upper / name}/work"
                + ",userxattr" * bool(user))
        call(libc.mount, b"overlay", bytes(folder / name), b"overlay", 0, data.encode())
    try:
        yield
    finally:
        for name in names:
            libc.umount2(bytes(folder / name), 2)
        shutil.rmtree(upper, ignore_errors=True)


class Work:
    """The work folder: a copy of the tree, its build, and tests that run there."""

    def __init__(self, folder, jobs):
        self.folder, self.jobs = folder, jobs
        self.src, self.build = folder / "src", folder / "build"
        for name in ("layers", "runs"):  # that were stopped in the middle
            shutil.rmtree(folder / name, ignore_errors=True)
        self.names = self.copy()
        self.core = [n for n in self.names if n.startswith(CORE) and n.endswith(".c")]
        self.text = {n: (self.src / n).read_text(encoding="utf-8") for n in self.core}
        self.stamp = self.digest(lambda n: not n.startswith("t/") and not n.endswith(TEXTS))
        self.tests_stamp = self.digest(lambda n: n.startswith("t/") and "/mistakes" not in n)
        if not (self.build / "build.ninja").exists():
            said("meson", "setup", self.build, self.src, *OPTIONS)
        said("ninja", "-C", self.build, "build.ninja")
        made = {t["id"]: t["filename"] for t in self.introspect("--targets")}
        outputs = {file for files in made.values() for file in files}
        self.tests = {}
        for test in self.introspect("--tests"):
            # one that is alone compares speeds
            if not SUITES & set(test["suite"]) or not test["is_parallel"]:
                continue
            files = {file for i in test["depends"] for file in made.get(i, [])}
            files |= outputs & set(test["cmd"])
            test["targets"] = sorted(os.path.relpath(file, self.build) for file in files)
            self.tests[test["name"]] = test
        commands = json.loads((self.build / "compile_commands.json").read_text(encoding="utf-8"))
        self.objects = []  # of the core: (source, object, command)
        for c in commands:
            source = os.path.relpath(os.path.join(c["directory"], c["file"]), self.src)
            if source in set(self.core):
                self.objects.append((source, c["output"], shlex.split(c["command"])))

    def introspect(self, what):
        return json.loads(said("meson", "introspect", what, self.build))

    def copy(self):
        """What git knows of the tree, as it lies there; files that are the same keep their time."""
        names = [n for n in said("git", "-C", TREE, "ls-files", "-z").decode().split("\0")
                 if n and (TREE / n).is_file()]
        for name in names:
            to = self.src / name
            to.parent.mkdir(parents=True, exist_ok=True)
            if not to.is_file() or to.read_bytes() != (TREE / name).read_bytes():
                shutil.copyfile(TREE / name, to)
                shutil.copymode(TREE / name, to)
        for path in [p for p in self.src.rglob("*") if p.is_file()]:
            if str(path.relative_to(self.src)) not in set(names):
                path.unlink()
        return names

    def digest(self, wanted):
        found = hashlib.sha256()
        for name in filter(wanted, self.names):
            found.update(name.encode() + b"\0" + (self.src / name).read_bytes())
        return found.hexdigest()[:16]

    def make(self, targets, jobs=1):
        """None, or what was wrong."""
        if not targets:  # would be all
            return None
        done = subprocess.run(["ninja", "-C", self.build, f"-j{jobs}", "-k0", *targets],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.stdout.decode(errors="replace") if done.returncode else None

    def tells(self, mistake):
        """Whether the compiler, when it optimises, says that a value is missing."""
        command = next(c for source, _, c in self.objects if source == mistake.file)
        words = [command[0], *[w for w in command if w.startswith(("-I", "-D", "-std="))]]
        words += ["-O1", "-Werror=uninitialized", "-Werror=maybe-uninitialized", "-c",
                  self.src / mistake.file, "-o", os.devnull]
        done = subprocess.run(words, cwd=self.build, stderr=subprocess.DEVNULL, check=False)
        return done.returncode != 0

    def run(self, name, limit):
        """None, or how the test failed. What it runs is counted in a folder that is empty."""
        test = self.tests[name]
        shutil.rmtree(self.counts(), ignore_errors=True)
        env = os.environ | test["env"] | SANITIZERS | {
            "GLAKE_TEST_SEED": SEED, "PYTHONDONTWRITEBYTECODE": "1",
            "GCOV_PREFIX": str(self.counts()), "GCOV_PREFIX_STRIP": str(len(self.build.parts) - 1)}

        def child():  # it is the first to go when a mistake takes all memory
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")

        run = subprocess.Popen(
            test["cmd"], env=env, cwd=test["workdir"] or self.build, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=child)
        try:
            text, hangs = run.communicate(timeout=limit)[0].decode(errors="replace"), False
        except subprocess.TimeoutExpired:
            text, hangs = "", True
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.stdout.close()
            status = run.wait()
        bad = re.search(r"^not ok (?!.*# TODO).*", text, re.M)
        plan = re.search(r"^1\.\.(\d+)", text, re.M)
        count = len(re.findall(r"^ok\b", text, re.M))
        if hangs:
            return f"hangs, {limit:.0f} s"
        if bad:
            return bad[0]
        if status:
            return signal.Signals(-status).name if status < 0 else f"ends with {status}"
        return None if plan and int(plan[1]) == count else f"ends after {count} checks"

    def counts(self):
        return self.folder / "runs" / str(os.getpid())

    def lines(self):
        """What the last test ran of the core: {file: [line]}."""
        found, counts = collections.defaultdict(set), []
        for _, output, _ in self.objects:
            count = (self.counts() / output).with_suffix(".gcda")
            if count.exists():
                count.with_suffix(".gcno").symlink_to((self.build / output).with_suffix(".gcno"))
                counts.append(count)
        for at in range(0, len(counts), 100):
            for row in said("gcov", "--json-format", "--stdout", *counts[at:at + 100]).splitlines():
                for file in json.loads(row)["files"]:
                    name = os.path.relpath(os.path.join(self.build, file["file"]), self.src)
                    if name.startswith(CORE):
                        found[name] |= {x["line_number"] for x in file["lines"] if x["count"]}
        return {name: sorted(lines) for name, lines in found.items() if lines}

    def reach(self, args, until):
        """{test: {"seconds", "failed", "lines"}}, of each test by itself."""
        path, found = self.folder / "reach.json", {}
        if path.exists():
            rows = [json.loads(r) for r in path.read_text(encoding="utf-8").splitlines()
                    if r.endswith("}")]
            found = {r["test"]: r for r in rows if r["stamp"] == self.stamp
                     and r["test"] in self.tests and r["test"] not in args.again
                     and r.get("longest", args.longest) >= args.longest}
        new = path.with_suffix(".new")
        new.write_text("".join(json.dumps(r) + "\n" for r in found.values()), encoding="utf-8")
        new.replace(path)
        missing = sorted(set(self.tests) - set(found))
        with workers(self.jobs) as pool:
            rows = [pool.submit(apart, self.reach_of, name, args.longest, until) for name in missing]
            for at, done in enumerate(concurrent.futures.as_completed(rows), 1):
                row = done.result()
                print(f"{at}/{len(missing)}: {row['test']}: {row['seconds']:.1f} s, "
                      f"{sum(map(len, row['lines'].values()))} lines {row['failed'] or ''}", flush=True)
                found[row["test"]] = row
                with open(path, "a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
        return list(found.values())

    def reach_of(self, name, longest, until):
        if time.monotonic() > until:
            raise Out
        start = time.monotonic()
        failed = self.run(name, longest)
        row = {"stamp": self.stamp, "test": name, "seconds": time.monotonic() - start,
               "failed": failed, "lines": self.lines()}
        shutil.rmtree(self.counts(), ignore_errors=True)
        return row | ({"longest": longest} if failed and failed.startswith("hangs") else {})

    def plant(self, mistake, tests, until):
        """{"noticed": test or None, "how", "tried"}, or None where it does not compile."""
        path, once = self.src / mistake.file, ""
        path.write_text(edited(self.text[mistake.file], mistake.edits), encoding="utf-8")
        if mistake.kind == "no store" and self.tells(mistake):
            return None
        for tried, (_, seconds, name) in enumerate(tests, 1):
            if time.monotonic() > until:
                raise Out
            if self.make(self.tests[name]["targets"]):
                return None
            limit = min(3 * seconds + 10, 120)
            how = self.run(name, limit)
            # what another load of the machine does is not the mistake
            if how and self.run(name, limit):
                return {"noticed": name, "how": how, "tried": tried}
            once = f"{name} failed once: {how}" if how else once
        return {"noticed": None, "how": once, "tried": len(tests)}

    def planted(self, mistake, tests, until):
        start = time.monotonic()
        with layer(self.folder, ("src", "build")):
            result = self.plant(mistake, tests, until)
        shutil.rmtree(self.counts(), ignore_errors=True)
        return result and result | {"tests": self.tests_stamp, "seconds": time.monotonic() - start}


def said(*command):
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout


class Reach:
    """Which tests run a line, in the order in which they are tried."""

    def __init__(self, runs):
        self.at = collections.defaultdict(lambda: collections.defaultdict(list))
        self.named = {}
        for run in runs:
            if not run["failed"]:
                self.named[run["test"]] = run["seconds"], run["test"]
                for name, lines in run["lines"].items():
                    rate = len(lines) / (1 + run["seconds"])
                    for line in lines:
                        self.at[name][line].append((-rate, run["seconds"], run["test"]))

    def tests(self, m):
        lines = self.at[m.file]
        wanted = [m.line] if m.line in lines else range(m.first, m.last + 1)
        own = re.sub(r"^lib/|\.c$", "", m.file)
        room = own[:own.index("/") + 1]
        found = {test for line in wanted for test in lines.get(line, [])}
        # what its children run is not counted
        if found and own in self.named and own not in {test[-1] for test in found}:
            found.add((0, *self.named[own]))
        return sorted(found,
                      key=lambda test: (own not in test[-1], room not in test[-1], test))


class Results:
    """What was found, and what nobody can notice."""

    def __init__(self, work):
        rows = (TREE / "t/mistakes.equal").read_text(encoding="utf-8").splitlines()
        self.equal = {row.split("  # ")[0] for row in rows if not row.startswith("#")}
        self.work, self.path, self.of = work, work.folder / "results.json", {}
        if self.path.exists():
            saved = json.loads(self.path.read_text(encoding="utf-8"))
            for key, result in saved["results"].items():
                if saved["stamp"] == work.stamp and (
                        not result or result["noticed"] or result["tests"] == work.tests_stamp
                        or key.split(": ", 1)[1] in self.equal):
                    self.of[key] = result

    def save(self):
        new = self.path.with_suffix(".new")
        text = json.dumps({"stamp": self.work.stamp, "results": self.of}, indent=1)
        new.write_text(text, encoding="utf-8")
        new.replace(self.path)

    def find(self, mistake, tests, until):
        key = f"{mistake.kind}: {key_of(mistake)}"
        result = self.of.get(key)
        more = result and not result["noticed"] and result["tried"] < len(tests)
        if key in self.of and not (more and key_of(mistake) not in self.equal):
            return result
        return apart(self.work.planted, mistake, tests, until)

    def keep(self, mistake, result):
        self.of[f"{mistake.kind}: {key_of(mistake)}"] = result
        self.save()

    def row(self, mistake, result):
        if result["noticed"]:
            end = f"noticed by {result['noticed']} ({result['how']})"
        else:
            end = f"NOT NOTICED by {result['tried']} tests {result['how']}".rstrip()
            end += ", equal in effect" * (key_of(mistake) in self.equal)
        return f"{shown(mistake)} ({mistake.kind})\n    {end}"


def go(work, args, until):
    found = [m for name, text in work.text.items() for m in mistakes_of(name, text)]
    results, planted, again, unreached = Results(work), [], 0, 0
    for key in sorted(results.equal - {key_of(m) for m in found}):
        print(f"t/mistakes.equal: no such mistake: {key}")
    try:
        runs = work.reach(args, until)
        for run in runs:
            if run["seconds"] > args.longest:
                run["failed"] = "takes long"
        out = [f"{r['test']} ({r['failed']})" for r in runs if r["failed"]]
        print(f"{len(runs)} tests, of which are left out: {', '.join(out) or 'none'}")
        reach = Reach(runs)
        nowhere = sum(not reach.tests(m) for m in found)
        print(f"{len(found)} mistakes in {len(work.core)} files, {nowhere} where no test comes")
        order = list(drawn(found, args.seed))
        if args.only:
            order = [m for m in found if {m.file, f"{m.file}:{m.line}"} & set(args.only)]
        reached = [(at, m) for at, m in enumerate(order) if reach.tests(m)]
        if args.list:
            for _, m in reached[:args.count]:
                print(f"{shown(m)} ({len(reach.tests(m))} tests)")
            return
        with workers(work.jobs) as pool:
            for tried, ((at, mistake), result) in enumerate(zip(reached, pool.map(
                    lambda each: results.find(each[1], reach.tests(each[1])[:args.tests], until),
                    reached)), 1):
                results.keep(mistake, result)
                unreached = at + 1 - tried
                again += not result
                if result:
                    planted.append((mistake, result))
                    print(f"{len(planted)}: {results.row(mistake, result)}", flush=True)
                if len(planted) == args.count:
                    break
    except Out:
        print(f"the {args.minutes:g} minutes are over; the next run goes on here")
    missed = [(m, result) for m, result in planted if not result["noticed"]]
    equal = sum(key_of(m) in results.equal for m, _ in missed)
    print("", "Not noticed:", *[results.row(*m) for m in missed], "", sep="\n")
    print(f"{again} drawn again since they do not compile, {unreached} since no test comes there")
    print(f"{len(planted)} planted, {len(planted) - len(missed)} noticed, {len(missed)} not, "
          f"{equal} of those equal in effect")


def main():
    parser = argparse.ArgumentParser(description="Plants mistakes and says which no test notices.")
    parser.add_argument("--count", metavar="N", type=int, default=60, help="mistakes, else 60")
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="which are drawn")
    parser.add_argument("--minutes", metavar="M", type=float, default=1e6, help="stop after these")
    parser.add_argument("--only", metavar="FILE[:LINE]", action="append",
                        help="the mistakes there instead; may be given again")
    parser.add_argument("--tests", metavar="N", type=int, default=40,
                        help="how many are tried of those that run a line, else 40")
    parser.add_argument("--longest", metavar="S", type=float, default=60,
                        help="leave tests out that take more seconds, else 60")
    parser.add_argument("--again", metavar="TEST", action="append", default=[],
                        help="see anew which lines it runs")
    parser.add_argument("--list", action="store_true", help="show what is drawn, and plant nothing")
    parser.add_argument("-j", metavar="N", type=int, default=1,
                        help="mistakes at once, and jobs of the build")
    parser.add_argument("folder", help="the work folder, outside the tree")
    args = parser.parse_args()
    folder, until = Path(args.folder).resolve(), time.monotonic() + 60 * args.minutes
    if folder == TREE or TREE in folder.parents:
        parser.error(f"{folder} lies in the tree")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was begun is ended
    folder.mkdir(parents=True, exist_ok=True)
    work = Work(folder, args.j)
    wrong = work.make(
        sorted({file for test in work.tests.values() for file in test["targets"]}), args.j)
    if wrong:
        print(wrong, file=sys.stderr)
        return 1
    go(work, args, until)
    return 0


if __name__ == "__main__":
    sys.exit(main())
