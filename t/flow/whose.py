# SPDX-License-Identifier: LGPL-2.1-or-later
"""glakectl whose, check and dedup: what an address of a running process is, what is found behind its blocks, and in them."""
import json
import os
import socket
import subprocess

from tap import HUNG, TOOL, done, equal, has, ok, start
from watched import Room, Watched


def check_usage(room):
    for words in (["whose"], ["whose", "12x"], ["whose", "0"], ["whose", "-1"], ["whose", "1", "2", "3"],
                  ["check", "1", "2"], ["check", "--no-such"], ["dedup", "1", "2"], ["dedup", "--no-such"]):
        equal(room.tool(*words).returncode, 2, f"{' '.join(words)}: wrong usage")
    run = room.tool("check")
    equal((run.returncode, run.stdout), (1, ""), "check of nobody fails")


def whose(room, address):
    run = room.tool("whose", "--json", hex(address))
    equal(run.returncode, 0, "it answers")
    return json.loads(run.stdout)


def check_whose(room):
    program = Watched(room, GLAKE_GUARD_MODE="canary")
    program.do("open")
    program.do("alloc 0 3 5000")
    first, second, third = map(int, program.do("addresses").split()[:3])
    found = whose(room, second + 7)
    equal((found["what"], found["base"], found["size"], found["offset"], found["gpu"]),
          ("live", second, 5000, 7, 0), "a block, from the inside")
    ok(found["thread"] == program.pid and found["age_ns"] >= 0 and "freed_by" not in found, "who has it")
    equal((found["before"], found["before_size"], found["behind"]), (first, 5000, third), "and who lies beside it")
    equal(whose(room, second + 5000)["what"], "behind", "its canary")
    equal(whose(room, 4096), {"address": 4096, "what": "foreign"}, "no memory of it")
    text = room.tool("whose", str(second), str(program.pid)).stdout
    has(text, "5000 bytes asked for", "in words")
    has(text, f"behind    {hex(third)}", "and its neighbours")
    program.do("free")
    found = whose(room, third)
    equal((found["what"], found["base"]), ("freed", third), "one that was freed")
    ok(found["freed_by"] == program.pid and found["freed_ns"] >= 0, "by whom")
    has(room.tool("whose", hex(third)).stdout, "freed by", "in words")
    equal(program.end(), "", "the program ends")


def check_check(room):
    program = Watched(room, GLAKE_GUARD_MODE="canary", GLAKE_LOG_LEVEL="none")
    program.do("open")
    program.do("alloc 0 3 5000")
    first = int(program.do("addresses").split()[0])
    run = room.tool("check")
    equal(run.returncode, 0, "nothing is wrong")
    has(run.stdout, "3 blocks looked at, 0 broken", "of three blocks")
    program.do("spoil 5003")
    run = room.tool("check", "--json", str(program.pid))
    equal(run.returncode, 1, "a byte is written behind one")
    found = json.loads(run.stdout)
    equal([c["broken"] for c in found], [1], "it is found")
    last = found[0]["last"]
    equal([(f["kind"], f["base"], f["size"], f["offset"], f["bytes"]) for f in last],
          [("overrun", first, 5000, 5003, 1)], "with all that is known of it")
    run = room.tool("check")
    equal(run.returncode, 1, "what was found stays found")
    has(run.stdout, f"overrun, 1 bytes from offset 5003 of {hex(first)}", "in words")
    equal([program.do("check") for _ in range(2)], ["failed", "done"], "the program is told too, once")
    program.end()


def check_dedup(room):
    """Blocks that nobody has written are zero on the software device."""
    program = Watched(room)
    program.do("open")
    program.do(f"alloc 0 3 {4 << 20}")
    run = room.tool("dedup")
    equal((run.returncode, run.stdout), (0, "context 1, GPU 0: 0 B exist once and are in use again\n"),
          "nothing is shared")
    run = room.tool("dedup", "--dry-run", "--json", str(program.pid))
    equal(run.returncode, 0, "it looks")
    found = json.loads(run.stdout)[0]
    equal((found["looked_bytes"], found["equal_bytes"]), (12 << 20, (12 << 20) - (64 << 10)), "in parts, at all blocks")
    equal((found["pages_looked_bytes"], found["pages_equal_bytes"]), (12 << 20, 10 << 20), "and in whole pages")
    has(room.tool("dedup", "-n").stdout, "in pages of 2.00 MiB: 10.0 MiB of 12.0 MiB are there more than once, 83.3 %", "in words")
    equal(program.end(), "", "the program ends")


def check_liar(room):
    """One who answers what no process of glake would."""
    path = os.path.join(room.path, f"{os.getpid()}.sock")
    with socket.socket(socket.AF_UNIX) as liar:
        liar.bind(path)
        liar.listen(8)
        for words, result, status, out, err in (
                (["whose", "--json", "1"], b"null", 1, "", "it answers with nothing"),
                (["whose", "--json", "1"], '{"what":"\x7f\x9b31m"}'.encode(), 0, '{\n  "what": "\\u007f\\u009b31m"\n}\n', ""),
                (["stat", "--prometheus"], b'"\\ud800 1\\n"', 0, "? 1\n", ""),
                (["whose", "--json", "1"], b'{"size":1e999}', 1, "", "is no JSON"),
                (["dedup", "--dry-run"], b'[{"looked_bytes":1,"equal_bytes":1' + b"0" * 400 + b"}]", 0, "context 0, GPU 0: 0 B", "")):
            run = subprocess.Popen([TOOL, *words, str(os.getpid())], env=room.env, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
            one = liar.accept()[0]
            one.recv(1000)
            one.sendall(b'{"jsonrpc":"2.0","id":1,"result":' + result + b"}\n")
            one.close()
            said = run.communicate(timeout=HUNG)
            equal((run.returncode, said[0][:len(out)]), (status, out), f"{result[:40]}: what is shown of it")
            equal(bool(said[0]), bool(out), "and nothing else")
            has(said[1], err, "and said")
            ok(said[1].count("\n") <= 1, "in a line", said[1])
    os.unlink(path)


def main():
    start()
    with Room() as room:
        check_usage(room)
        check_whose(room)
        check_check(room)
        check_dedup(room)
        check_liar(room)
    done()


main()
