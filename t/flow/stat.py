# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl ps and stat: what they show of processes is what these have, in every form; and what they
say of processes that are not there, of one name, or gone meanwhile.
"""
import json
import os
import re
import shutil
import socket
import subprocess

from tap import HUNG, REAL_TIME, TOOL, done, equal, has, ok, skip, start, until
from watched import Room, Watched, ask

NAME = os.path.basename(os.environ["GLAKE_WATCH_PROGRAM"])[:15]
SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z]+="[^"\\]*",?)+)\} (\+Inf|NaN|[0-9]+(?:\.[0-9]+)?)')
OF_HISTOGRAM = ("_bucket", "_sum", "_count")


def still(stats):
    """Without what asking changes: how often the lock was held, and how long."""
    for context in stats["contexts"]:
        for gpu in context["gpus"]:
            gpu["hold_duration_ns"] = gpu["hold_max_ns"] = None
    return stats


def check_nobody(room):
    run = room.tool("ps")
    equal((run.returncode, run.stdout), (0, ""), "ps of nobody is empty")
    has(run.stderr, "rpc.socket=yes makes one", "and says how it would not be")
    equal(json.loads(room.tool("ps", "--json").stdout), {"processes": []}, "as JSON too")
    for args in ([], ["77"], ["--json"]):
        run = room.tool("stat", *args)
        equal((run.returncode, run.stdout), (1, ""), f"stat {args} fails")
        has(run.stderr, "no process has a socket", "with a word")
    none = os.path.join(room.parent, "none")
    with open(none, "w", encoding="ascii"):
        pass
    for command in ("ps", "stat", "map", "kv"):
        run = subprocess.run([TOOL, command], env={**room.env, "XDG_RUNTIME_DIR": none}, check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        equal((run.stdout, run.stderr.count("\n")), ("", 1), f"{command} where the system has no directory of the user")
        has(run.stderr, f"there is no directory {none}: set XDG_RUNTIME_DIR", "says what to do there")
    for args in (["1", "2"], ["-i", "0"], ["-i", "x"], ["-n", "3"], ["-n", "0", "-i", "1"],
                 ["--json", "--prometheus"], ["--times", "--json"], ["--nothing"]):
        equal(room.tool("stat", *args).returncode, 2, f"stat {args}: wrong usage")
    equal(room.tool("ps", "1").returncode, 2, "ps 1: wrong usage")


def check_forms(room, program):
    run = room.tool("ps")
    equal(run.stderr, "", "ps has nothing to say beside its table")
    rows = run.stdout.splitlines()
    equal(len(rows), 2, "a head and a process")
    equal(rows[1].split(), [str(program.pid), rows[1].split()[1], rows[1].split()[2], "2.86",
                            "MiB", rows[1].split()[5], rows[1].split()[6], "1"],
          "its number, program, version, live, reserved, GPUs")
    one = json.loads(room.tool("ps", "--json").stdout)["processes"][0]
    direct = ask(program.connect(), "stats")
    gpu = direct["contexts"][0]["gpus"][0]
    equal(one, {"pid": program.pid, "program": direct["program"], "version": direct["version"],
                "gpus": [1], "live_bytes": 3000000, "reserved_bytes": gpu["reserved_bytes"]},
          "ps --json")
    shown = room.tool("stat", "--json")
    direct = still(direct)
    equal((still(json.loads(shown.stdout)), shown.stderr), (direct, ""),
          "stat --json of the only one")
    equal(still(json.loads(room.tool("stat", "-j", str(program.pid)).stdout)), direct,
          "by its number")
    equal(still(json.loads(room.tool("stat", "-j", direct["program"]).stdout)), direct,
          "by its name")
    table = room.tool("stat").stdout
    rows = [row.split()[1:] for row in table.splitlines() if re.match("  [a-z]", row) and "streams" not in row]
    ok(rows and not any(row[0] in ("0", "-") for row in rows), "without --all no row is 0", rows)
    has(table, "--all", "and it says how the others are had")
    table = room.tool("stat", "--all").stdout
    for name, value in gpu.items():
        if name.startswith("stream_"):
            ok(re.search(rf"^  GPU 1 +streams .*{name[7:]}", table, re.M), f"streams have {name}")
        elif name != "gpu" and not name.endswith("_duration_ns"):
            row = re.escape(f"{name}.{next(iter(value))}" if isinstance(value, dict) else name)
            ok(re.search(rf"^  {row} +\S", table, re.M), f"the table has {name}")
    ok(re.search(r"^    legacy +2\.86 MiB +3 ", table, re.M), "a stream")
    ok("duration" not in table, "times are not shown unasked")
    table = room.tool("stat", "--times", "--all").stdout
    ok(re.search(r"^  request_duration +3( +[\d.]+ [num]?s){4}$", table, re.M), "three requests")
    ok(re.search(r"^  spill_duration +0$", table, re.M), "no spill")
    ok(re.search(r"^  driver_call_duration\.create +\d+ +8\.10 us +\S+ us +8\.10 us +8\.10 us$",
                 table, re.M), "calls of the driver, modelled")
    equal([row for row in table.splitlines() if len(row) > 90], [], "rows are short")
    heads = {row.index("calls") + 5 for row in table.splitlines() if row.endswith(" longest")}
    has(table, "driver_call_duration.managed_prefetch", "the longest name")
    rows = [row for row in table.splitlines() if re.match(r"  \S*duration\S* ", row)]
    equal({row[max(heads) - 1:max(heads) + 1].rstrip()[-1:].isdigit() for row in rows}, {True},
          f"{len(rows)} counts of calls in one column")
    equal(len(heads), 1, "under one head")
    has(table, f"Process {program.pid}, ", "of which process")
    ok(re.search(r"^  live_bytes +2\.86 MiB$", table, re.M), "live memory")
    ok(re.search(r"^  driver_calls\.create +\d+$", table, re.M), "calls of the driver")


def check_prometheus(room, program):
    text = room.tool("stat", "--prometheus").stdout
    gpu = ask(program.connect(), "stats")["contexts"][0]["gpus"][0]
    known, seen, bad, last = {}, set(), [], None
    for row in text.splitlines():
        if row.startswith("# HELP "):
            last = row.split()[2]
        elif row.startswith("# TYPE "):
            known[row.split()[2]] = row.split()[3]
            bad += [row] if row.split()[2] != last or last in seen else []
        else:
            match = SAMPLE.fullmatch(row)
            name = match and match[1]
            if name and known.get(last) == "histogram":
                name = name.removesuffix(next((end for end in OF_HISTOGRAM if name.endswith(end)),
                                              "?"))
            bad += [row] if not match or name != last or last not in known else []
            bad += [row] if match and (match[1], match[2]) in seen else []
            seen |= {last, (match and match[1], match and match[2])}
    equal(bad, [], f"{len(known)} metrics, each with its help, type and samples in one place")
    equal([name for name, kind in known.items() if (kind == "counter") != name.endswith("_total")],
          [], "counters alone end with _total")
    counts, run = re.findall(r'_bucket\{(.*),le="([^"]+)"\} (\d+)', text), []
    for labels, bound, value in counts:
        run = run if run and run[0] == labels else [labels, 0.0, 0]
        bad += [bound] if float(bound) <= run[1] or int(value) < run[2] else []
        run = [labels, 0.0, 0] if bound == "+Inf" else [labels, float(bound), int(value)]
    ok(len(counts) > 100 and not bad, "bounds and counts of buckets rise")
    for labels, value in re.findall(r'_bucket\{(.*),le="\+Inf"\} (\d+)', text):
        bad += [labels] if f"_count{{{labels}}} {value}\n" not in text else []
    equal(bad, [], "the last bucket has all that are counted")
    has(text, f'glake_reserved_bytes{{context="1",gpu="1"}} {gpu["reserved_bytes"]}\n',
        "the figures are those of JSON")
    if shutil.which("promtool"):
        run = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        equal(run.returncode, 0, f"promtool has no complaint: {run.stdout}")
    else:
        skip("promtool has no complaint", "promtool is not installed")
    if shutil.which("socat") and shutil.which("jq"):
        line = (f"echo '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"metrics\"}}' | "
                f"socat -t 10 - UNIX-CONNECT:{program.path} | jq -j .result")
        got = subprocess.run(["sh", "-c", line], stdout=subprocess.PIPE, text=True, check=False)
        equal(got.stdout.count("# TYPE"), len(known), "the line of the manual gives the same")
    else:
        skip("the line of the manual gives the same", "socat or jq is not installed")


def check_two(room, program):
    other = Watched(room)
    other.do("open")
    equal(len(room.tool("ps").stdout.splitlines()), 3, "a second process")
    for args in ([], [NAME]):
        name = ask(program.connect(), "info")["program"] if args else None
        run = room.tool("stat", *([name] if name else []))
        equal(run.returncode, 1, f"stat {'of a name' if args else ''}: there are two")
        for one in (program, other):
            has(run.stderr, str(one.pid), "it says which to choose from")
    equal(room.tool("stat", str(other.pid)).returncode, 0, "one is chosen")
    run = room.tool("stat", "nobody")
    equal(run.returncode, 1, "a name that none has")
    has(run.stderr, "called 'nobody'", "is said")
    run = room.tool("stat", "99999999")
    equal(run.returncode, 1, "a number that none has")
    has(run.stderr, "process 99999999: it has no socket here", "is said")
    return other


def check_watch(room, other):
    run = room.tool("stat", "-j", "-i", "0.05", "-n", "3", str(other.pid))
    rows = [json.loads(row) for row in run.stdout.splitlines()]
    equal([row["pid"] for row in rows], [other.pid] * 3, "three samples, a line each")
    run = subprocess.Popen([os.environ["GLAKECTL"], "stat", "-j", "-i", "0.05", str(other.pid)],
                           env=room.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    json.loads(run.stdout.readline())
    other.run.kill()
    other.run.wait()
    said = run.communicate(timeout=HUNG)[1]
    equal(run.returncode, 0, "a process that dies while it is watched ends that")
    has(said, f"process {other.pid} has ended", "with a word")
    equal(len(room.names()), 2, "it left its socket")
    equal(len(room.tool("ps").stdout.splitlines()), 2, "ps does not show it")
    equal(len(room.names()), 1, "and takes it away")
    run = room.tool("stat", "-i", "0.01", "-n", "20")
    equal(run.returncode, 0, "twenty samples")


def check_liar(room):
    """One who answers what no process of glake would."""
    path = os.path.join(room.path, f"{os.getpid()}.sock")
    liar = socket.socket(socket.AF_UNIX)
    liar.bind(path)
    liar.listen(8)
    for answer in (b"nonsense\n", b"{}\n", b"[]\n", b'{"result":7}\n', b'{"result":null}\n', b"",
                   b'{"error":{"message":"no\\u001b[31m"}}\n', b"[" * 5000 + b"\n",
                   b'{"result":{"contexts":[7,{"gpus":[7,{"live_bytes":"x"}]},{"gpus":{}}]}}\n',
                   b'{"result":{"contexts":[{"gpus":[{"gpu":0,"stream_x":{"\\u001b[1m":{}},"a_ns":'
                   b'{"below_ns":{"7":"x","":9,"-1":5,"\\u001b[2J":-3}},"b":{"\\u001b":{"below_ns":7,'
                   b'"count":[]}},"c_ratio":1e999,"stream_y":7,"d":{"x":{"below_ns":{}}}}]}]}}\n',
                   b'{"result":{"program":"\\u001b[2J\\u0007","pid":{},"contexts":{}}}\n',
                   b"x" * ((1 << 20) + 10)):
        for args in (["stat"], ["stat", "--times"], ["stat", "--prometheus"], ["stat", "--json"],
                     ["stat", "--oom"]):
            run = subprocess.Popen([os.environ["GLAKECTL"], *args, str(os.getpid())], env=room.env,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            one = liar.accept()[0]
            one.recv(1000)
            try:
                one.sendall(answer)
            except (BrokenPipeError, ConnectionResetError):
                pass
            one.close()
            shown, said = run.communicate(timeout=HUNG)
            ok(run.returncode in (0, 1) and b"\033" not in shown, f"{args} of {answer[:40]}", said)
    liar.close()
    os.unlink(path)


def check_oom(room):
    """Why memory was refused, as the process tells it."""
    program = Watched(room, GLAKE_POOL_BUDGET="64MiB", GLAKE_SOFT_GPUS="2")
    program.do("open")
    run = room.tool("stat", "--oom", str(program.pid))
    equal((run.returncode, run.stdout), (0, "No request was refused for want of memory.\n"),
          "none was refused")
    program.do("alloc 1 3 10000000")
    equal(program.do("alloc 1 1 50000000"), "failed", "one is")
    run = room.tool("stat", "-o", str(program.pid))
    equal((run.returncode, run.stderr), (0, ""), "stat --oom")
    ok(run.stdout.startswith("Context 1: GPU 1 refused 47.68 MiB on stream 0x0, refusal 1:\n"),
       "what was refused", run.stdout)
    for part in ("held with a budget of 64 MiB", "What would have helped:\n  pool.budget=",
                 "  up to 16 MiB: 28.61 MiB in 3\n", "  stream 0x0: 28.61 MiB in 3\n"):
        has(run.stdout, part, "the report")
    one = json.loads(room.tool("stat", "-oj", str(program.pid)).stdout)[0]
    equal((one["context"], one["gpu"], one["text"].split(":")[0]),
          (1, 1, "GPU 1 refused 47.68 MiB on stream 0x0, refusal 1"), "as JSON too")
    equal(room.tool("stat", "--oom", "--prometheus").returncode, 2, "not for Prometheus")
    equal(room.tool("stat", "--oom", "-i", "1").returncode, 2, "not again and again")
    program.end()


def check_deaf(room, program):
    """Many who take a question and do not answer: they are asked side by side."""
    deaf = []
    for pid in range(4190000, 4190040):
        one = socket.socket(socket.AF_UNIX)
        one.bind(os.path.join(room.path, f"{pid}.sock"))
        one.listen(1)
        deaf.append(one)
    runs = []

    def listed():  # who answers may be late too, where the machine is busy
        runs.append(room.tool("ps"))
        return str(program.pid) in runs[-1].stdout
    until(listed, 0)
    run = runs[-1]
    equal(len(run.stdout.splitlines()), 2, "who answers is listed")
    has(run.stdout, str(program.pid), "by its number")
    equal(run.stderr.count("it does not answer in time"), 40, "the others are told of")
    for one in deaf:
        name = one.getsockname()
        one.close()
        os.unlink(name)


def check_many(room):
    """The figures of many blocks cost what those of few do: nothing is walked."""
    program = Watched(room)
    program.do("open")
    program.do("alloc 0 100 4096")
    times = []
    for more in (0, 100000):
        if more:
            equal(program.do(f"alloc 0 {more} 4096"), "done", f"{more} blocks more")
        one = program.connect()
        task = next(task for task in os.listdir(f"/proc/{program.pid}/task")
                    if open(f"/proc/{program.pid}/task/{task}/comm").read() == "glake-rpc\n")
        before = processor(program.pid, task)
        for _ in range(300):
            stats = ask(one, "stats")
        times.append(processor(program.pid, task) - before)
    equal(stats["contexts"][0]["gpus"][0]["live_blocks"], 100100, "they are live")
    ok(times[1] < 10 * times[0] + 50_000_000, "300 answers take the same of 100 blocks and of 100100",
       f"{times[0] / 1e6:.1f} ms and {times[1] / 1e6:.1f}")
    program.end()


def check_streams(room):
    """Thousands of streams make no longer answer than some do."""
    program = Watched(room)
    program.do("open")
    equal(program.do("streams 4000"), "done", "4000 streams with a block each")
    one = program.connect()
    gpu = ask(one, "stats")["contexts"][0]["gpus"][0]
    streams = gpu["stream_live_blocks"]
    equal((gpu["streams"], len(streams)), (4000, 18), "the largest, the rest, and those that ended")
    equal(sum(streams.values()), 4000, "have all blocks")
    equal([streams["rest"], streams["ended"]], [3984, 0], "most of them the rest")
    top = list(gpu["stream_given_bytes"].values())[:16]
    equal(top, [512 * (4000 - i) for i in range(16)], "those that have most are told of")
    for method in ("stats", "metrics"):
        length = len(json.dumps(ask(one, method)))
        ok(length < 100_000, f"{method}: no long answer", length)
    program.end()


def processor(pid, task):
    """ns that a thread has run."""
    with open(f"/proc/{pid}/task/{task}/schedstat", encoding="utf-8") as file:
        return int(file.read().split()[0])


def main():
    start()
    with Room() as room:
        check_nobody(room)
        program = Watched(room, GLAKE_SOFT_GPUS="2")
        program.do("open")
        program.do("alloc 1 3 1000000")
        check_forms(room, program)
        check_prometheus(room, program)
        other = check_two(room, program)
        check_watch(room, other)
        check_liar(room)
        check_deaf(room, program)
        program.end()
        check_oom(room)
        if REAL_TIME:
            check_many(room)
        check_streams(room)
    done()


main()
