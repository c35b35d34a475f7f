# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl export: one text of all processes that is right for Prometheus, served on this host alone,
to many, and to those who ask badly.
"""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading

from tap import HUNG, done, equal, has, ok, skip, start
from warm import begin
from watched import Room, Watched, ask

TOOL = os.environ["GLAKECTL"]
SAMPLE = re.compile(r'([a-z_0-9]+)\{((?:[a-z_]+="[^"\\]*",?)*)\} (\+Inf|[0-9.]+(?:e[+-][0-9]+)?)')


def sample(line):
    """(name, labels, value) of a line; None for what is none of a process."""
    match = SAMPLE.fullmatch(line)
    labels = dict(re.findall(r'([a-z_]+)="([^"]*)"', match[2])) if match else {}
    return (match[1], labels, float(match[3])) if {"pid", "program"} <= labels.keys() else None


def samples(text, name):
    """{(pid, context, gpu): value} of a metric."""
    rows = filter(None, map(sample, text.splitlines()))
    return {(int(labels["pid"]), labels.get("context"), labels.get("gpu")): value for one, labels, value in rows if one == name}


def pids(text):
    return {row[1]["pid"] for row in map(sample, text.splitlines()) if row}


def check_text(text, what):
    """Each metric with its help, its type and all its samples in one place, no sample twice."""
    bad, heads, seen, last, parts = [], {}, set(), None, ("",)
    for line in text.splitlines():
        if line.startswith("# "):
            word, name = line.split()[1:3]
            if word == "HELP":
                bad += [line] if name in heads else []
                heads[name], last = [], name
            bad += [line] if name != last else []
            heads[name].append(word)
            parts = ("_bucket", "_sum", "_count") if line.endswith(" histogram") else ("",)
            continue
        row = sample(line)
        if not row or row[0] not in [f"{last}{part}" for part in parts] or line.rsplit(" ", 1)[0] in seen:
            bad.append(line)
        seen.add(line.rsplit(" ", 1)[0])
    equal(bad[:5], [], f"{what}: no line is wrong")
    equal([name for name, words in heads.items() if words != ["HELP", "TYPE"]], [],
          f"{what}: {len(heads)} metrics have a help and a type")
    if shutil.which("promtool"):
        run = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, check=False,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=HUNG)
        equal(run.returncode, 0, f"{what}: promtool has no complaint: {run.stdout}")
    return heads


def check_once(room, programs):
    run = room.tool("export", "--once")
    equal((run.returncode, run.stderr), (0, ""), "the text alone")
    heads = check_text(run.stdout, "three processes")
    ok(len(heads) > 40, "all figures are there")
    equal(pids(run.stdout), {str(program.pid) for program in programs}, "of all of them")
    name = room.tool("ps").stdout.splitlines()[1].split()[1]
    for i, program in enumerate(programs):
        equal(samples(run.stdout, "glake_live_bytes")[(program.pid, "1", "0")], (i + 1) * 1e6, "each with its own figures")
        equal(samples(run.stdout, "glake_up")[(program.pid, None, None)], 1, "and that it is up")
    ok(f'program="{name}"' in run.stdout, "by its name", name)
    one = room.tool("export", "-o", str(programs[1].pid)).stdout
    equal(pids(one), {str(programs[1].pid)}, "one that is named")
    check_text(room.tool("export", "-o", "nobody").stdout, "nobody")
    stat = room.tool("stat", "-p", str(programs[0].pid)).stdout
    has(stat, "# TYPE glake_live_bytes gauge\n", "stat has metrics")

    def names(text):
        return {line.split("{")[0] for line in text.splitlines() if line.startswith("glake_")}
    equal(names(stat) - names(run.stdout), set(), "export has all of them")
    has(run.stdout, "glake_request_duration_seconds_bucket{", "and histograms")


def check_many(room):
    """More figures than one answer holds: nothing of them is left out."""
    program = Watched(room, GLAKE_SOFT_GPUS="6")
    equal(program.do("spread 20 6"), "done", "20 contexts on 6 GPUs")
    answer = ask(program.connect(), "metrics")
    ok("_bucket{" not in answer, "one answer has no room for the times of all of them")
    one = ask(program.connect(), "metrics", context=7)
    ok("_bucket{" in one and 'context="7"' in one and 'context="8"' not in one,
       "of one context it has")
    equal([ask(program.connect(), method, context=77) for method in ("metrics", "stats")],
          [-32602] * 2, "there is no context 77")
    equal([c["context"] for c in ask(program.connect(), "stats", context=20)["contexts"]], [20],
          "stats of one too")
    run = room.tool("export", "--once", str(program.pid))
    ok(len(run.stdout) > 1 << 20, "export has all of it", len(run.stdout))
    found = samples(run.stdout, "glake_request_duration_seconds_count")
    equal(([*found.values()].count(1), len(found)), (120, 120), "times of each GPU of each context")
    check_text(run.stdout, "of many contexts")
    equal(samples(run.stdout, "glake_up"), {(program.pid, None, None): 1}, "and it is up")
    equal(program.end(), "", "nobody was warned of anything")


def check_liar(room):
    """One who answers what no process of glake would."""
    path = os.path.join(room.path, f"{os.getpid()}.sock")
    liar = socket.socket(socket.AF_UNIX)
    liar.bind(path)
    liar.listen(8)
    good = "# HELP glake_x X.\\n# TYPE glake_x gauge\\n"
    for text, kept, up in [  # a text that Prometheus would not take is left out whole
            (good + 'glake_x{a=\\"1\\"} 1\\n', 1, 1), (good + "glake_x{} 2\\n", 1, 1),
            (good.replace("gauge", "histogram") + "glake_x_sum{} 1\\n", 1, 1), (good + "other_x{} 1\\n", 0, 1),
            (good + 'glake_x{pid=\\"1\\"} 1\\n', 0, 1), (good + 'glake_x{program=\\"a\\"} 1\\n', 0, 1),
            (good + "glake_x{} one\\n", 0, 0), (good + "glake_x{}", 0, 0), (good + "glake_x{a=b} 1\\n", 0, 0),
            (good + 'glake_x{a b=\\"1\\"} 1\\n', 0, 0), (good + 'glake_x{__name__=\\"glake_y\\"} 1\\n', 0, 0), (None, 0, 0),
            ("# HELP glake_up U\\n# TYPE glake_up gauge\\nglake_up{} 7\\n", 0, 1), ("\\n" * 1000, 0, 1)]:
        end = begin("export", "--once", env=room.env)
        for answer in ('{"jsonrpc":"2.0","id":1,"result":{"program":"a\\"\\\\b\\n"}}',
                       f'{{"jsonrpc":"2.0","id":1,"result":"{text}"}}' if text else "[" * 100000):
            one = liar.accept()[0]
            one.recv(1000)
            one.sendall(answer.encode() + b"\n")
            one.close()
        shown = end().stdout.decode()
        check_text(shown, f"a liar who says {text[:60] if text else 'lists in lists'}")
        equal(len(re.findall("^glake_x(?:_sum)?{", shown, re.M)), kept, "what is no sample is left out")
        equal([*samples(shown, "glake_up").values()], [up], "and whether it is up is ours to say")
    liar.close()
    os.unlink(path)


def check_other_type(room, programs):
    """One whose metrics have other types, or are ours, takes nothing from others."""
    path = os.path.join(room.path, f"{os.getpid()}.sock")
    with socket.socket(socket.AF_UNIX) as liar:
        liar.bind(path)
        liar.listen(8)
        end = begin("export", "--once", env=room.env)
        others = "".join(f"# HELP glake_a{i} x\\n# TYPE glake_a{i} gauge\\nglake_a{i}{{}} 1\\n"
                         for i in range(2000))
        for result in ('{"program":"liar"}',
                       '"# HELP glake_live_bytes x\\n# TYPE glake_live_bytes histogram\\n'
                       'glake_live_bytes_sum{} 1\\n# HELP glake_up x\\n# TYPE glake_up gauge\\n'
                       'glake_up{} 1\\n' + others + '"'):
            one = liar.accept()[0]
            one.recv(1000)
            one.sendall(b'{"jsonrpc":"2.0","id":1,"result":' + result.encode() + b"}\n")
            one.close()
        shown = end().stdout.decode()
    os.unlink(path)
    check_text(shown, "with one who has other types")
    equal({pid for pid, *_ in samples(shown, "glake_live_bytes")}, {program.pid for program in programs}, "a metric has the type that most say")
    equal(shown.count("glake_up{"), len(programs) + 1, "who is up is said by nobody but us")
    ok("glake_request_duration_seconds_bucket{" in shown, "who has many metrics leaves room")


def check_broker(room):
    """What a broker tells is served too; this one is the test's."""
    path = os.path.join(room.path, "broker.sock")
    told = {"gpus": [{"gpu": "GPU-1", "total": 1000, "free": 300, "held": 600, "published": 100, "guaranteed": 7, "waiting": 1,
                      "asks": 5, "stalls": 2, "refusals": 3,
                      "contents": [{"bytes": 100, "users": 4}, {"bytes": 50, "users": 0}, {"users": "x"}, 5],
                      "clients": [{"name": "a", "pid": 7, "held": 600}]}, 9]}
    for text, lines in ((json.dumps(told), 11), ("[]", 0), ("{", 0), ('{"gpus": 4}', 0), (None, 0)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as broker, tempfile.TemporaryFile() as file:
            broker.bind(path)
            broker.listen(8)
            file.write((text or "").encode())
            file.flush()
            run = subprocess.Popen([TOOL, "export", "--once"], env=room.env, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
            with broker.accept()[0] as one:
                one.recv(100)
                socket.send_fds(one, [struct.pack("=IHHII", 0x464b4c47, 1, 1, 0x10f, 0)], [file.fileno()] if text else [])
            shown, said = run.communicate(timeout=HUNG)
        os.unlink(path)
        equal((len(re.findall("^glake_broker_", shown, re.M)), run.returncode, said), (lines, 0, ""),
              f"{lines} figures of a broker that says {str(text)[:20]}")
        if lines:
            for line in ('glake_broker_free_bytes{gpu="GPU-1"} 300.0', 'glake_broker_refusals_total{gpu="GPU-1"} 3.0',
                         'glake_broker_spared_bytes{gpu="GPU-1"} 300.0', "# TYPE glake_broker_asks_total counter",
                         'glake_broker_client_held_bytes{gpu="GPU-1",pid="7",program="a"} 600.0'):
                has(shown, line, "one of them")


class Server:
    def __init__(self, room, *args):
        self.run = subprocess.Popen([TOOL, "export", "--port", "0", *args], env=room.env,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said = self.run.stderr.readline()
        match = re.search(r":(\d+)/metrics$", self.said.strip())
        self.port = int(match[1]) if match else None

    def get(self, path="/metrics", method="GET", host="127.0.0.1", **headers):
        one = http.client.HTTPConnection(host, self.port, timeout=HUNG)
        one.request(method, path, headers=headers)
        answer = one.getresponse()
        return answer.status, answer.read().decode(), answer.headers

    def raw(self, data):
        """What it says to bytes, to its end."""
        one = socket.create_connection(("127.0.0.1", self.port), timeout=HUNG)
        got = b""
        try:
            one.sendall(data)
            while True:
                part = one.recv(65536)
                if not part:
                    break
                got += part
        except ConnectionResetError:
            pass
        return got

    def end(self, sig=signal.SIGINT):
        self.run.send_signal(sig)
        self.run.communicate(timeout=HUNG)
        return self.run.returncode


def check_http(room, server, programs):
    status, text, headers = server.get()
    equal(status, 200, "GET /metrics")
    equal(headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8", "its kind")
    check_text(text, "over HTTP")
    equal(text.count("glake_up{"), len(programs), "of all processes")
    for path in ("/", "/metrics/", "/metric", "/../metrics", "/metrics%00"):
        equal(server.get(path)[0], 404, f"GET {path}")
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "GRAB"):
        status, _, headers = server.get(method=method)
        equal((status, headers["Allow"]), (405, "GET"), f"{method} is refused")
    equal(server.get(Host=f"localhost:{server.port}")[0], 200, "by the name of this host")
    equal(server.get(Host="evil.example")[0], 403, "not by another one")
    for data in (b"nonsense\r\n\r\n", b"GET /metrics\r\n\r\n", b"\0" * 100 + b"\r\n\r\n",
                 b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\n\r\n",
                 b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 50000 + b"\r\n",
                 b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\nx"):
        got = server.raw(data)
        ok(b"200 OK" not in got, f"{data[:30]} is refused", got[:100])
    has(server.raw(b"GET /metrics HTTP/1.0\r\n\r\n").decode(), "glake_up{", "HTTP/1.0 is answered")
    crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(250)]
    with open(f"/proc/{server.run.pid}/status", encoding="ascii") as file:
        threads = int(re.search(r"Threads:\s*(\d+)", file.read())[1])
    ok(threads < 100, "a crowd finds no more than 64 places", threads)
    for one in crowd:
        one.settimeout(HUNG)
        try:
            one.recv(1)
        except ConnectionResetError:
            pass
        one.close()
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(40)]
    for one in silent:
        one.sendall(b"GET /met")
    got = []
    many = [threading.Thread(target=lambda: got.append(server.get()[0])) for _ in range(16)]
    for one in many:
        one.start()
    for one in many:
        one.join()
    equal(got, [200] * 16, "many at once, beside forty who say nothing")
    for one in silent:
        one.settimeout(HUNG)
    ok(all(not one.recv(1000).startswith(b"HTTP/1.1 200") for one in silent),
       "whom it leaves after a while")
    try:
        equal(server.get(host="::1")[0], 200, "at ::1 too")
    except OSError as error:
        skip("at ::1 too", f"this host has no such address: {error}")


def check_places(room):
    for args in (["-a", "0.0.0.0"], ["-a", "192.0.2.1"], ["-a", "::"]):
        run = room.tool("export", "-p0", *args)
        equal(run.returncode, 2, f"export {args}: not unless it is said")
        has(run.stderr, "--public", "by an option")
    for args in (["-a", "localhost"], ["-p", "65536"], ["-p", "x"], ["--json"]):
        equal(room.tool("export", *args).returncode, 2, f"export {args}: wrong usage")
    run = room.tool("export", "-p0", "-P", "-a", "192.0.2.1")
    equal(run.returncode, 1, "an address of another host")
    has(run.stderr, "cannot be served", "is told of")
    server = Server(room, "-a", "127.0.0.2")
    equal(server.get(host="127.0.0.2", Host="localhost")[0], 200, "another one of this host")
    taken = room.tool("export", "-a", "127.0.0.2", "-p", str(server.port))
    equal(taken.returncode, 1, "a port that is taken")
    has(taken.stderr, "Address already in use", "is told of")
    equal(server.end(signal.SIGTERM), 0, "SIGTERM ends it")
    server = Server(room, "-P", "-a", "0.0.0.0")
    equal(server.get(Host="other.example")[0], 200, "in public by any name")
    equal(server.end(), 0, "and it ends")


def main():
    start()
    with Room() as room:
        run = room.tool("export", "--once")
        if "prometheus_client is not installed" in run.stderr:
            equal((run.returncode, run.stdout, run.stderr.count("\n")), (1, "", 1), "without prometheus_client, in a line")
            skip("what is exported", "python3 has no prometheus_client, of Debian's package python3-prometheus-client")
            done()
        equal(run.stdout.count("\n"), 2, "nobody: the head of glake_up")
        poor = os.path.join(room.parent, "poor")
        os.mkdir(poor)
        with open(os.path.join(poor, "prometheus_client.py"), "w", encoding="ascii") as file:
            file.write("raise ImportError('planted')\n")
        run = subprocess.run([TOOL, "export"], env={**room.env, "PYTHONPATH": poor}, capture_output=True, text=True, check=False)
        equal((run.returncode, run.stdout, run.stderr), (
            1, "", "glakectl: export: prometheus_client is not installed: apt install python3-prometheus-client, or pip "
            "install prometheus_client\n"), "without prometheus_client")
        programs = [Watched(room) for _ in range(3)]
        for i, program in enumerate(programs):
            program.do("open")
            program.do(f"alloc 0 {i + 1} 1000000")
        check_once(room, programs)
        check_other_type(room, programs)
        server = Server(room)
        check_http(room, server, programs)
        programs.pop().end()
        equal(server.get()[1].count("glake_up{"), 2, "one that ends is none any more")
        equal(server.end(), 0, "SIGINT ends it")
        check_places(room)
        for program in programs:
            equal(program.end(), "", "the processes were told nothing")
        check_many(room)
        check_liar(room)
        check_broker(room)
    done()


main()
