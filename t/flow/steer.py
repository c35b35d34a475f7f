# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What moves a process from outside, at its socket: keys that may change, blocks and GPUs whose memory
goes away and comes back, and that none of it holds up what it is not about.
"""
import json
import os
import select
import signal

from tap import done, equal, has, start
from watched import Room, Watched, ask, exchange

MIB = 1 << 20
PARAMETERS, REFUSED = -32602, -32000


def fault(one, method, **params):
    """Code and sentence of an error."""
    question = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    error = exchange(one, json.dumps(question).encode() + b"\n").get("error", {})
    return error.get("code"), error.get("message", "")


def check_set(room):
    program = Watched(room, GLAKE_SOFT_GPUS="2", GLAKE_SOFT_MEMORY="256MiB")
    program.do("open")
    program.do("open")
    one = program.connect()
    row = {"key": "pool.budget", "value": "64MiB", "origin": "option", "source": "", "line": 0}
    equal(ask(one, "config.set", key="pool.budget", value="65536K"),
          [{"context": 1, **row}, {"context": 2, **row}], "a key is set, in words of its own")
    equal([gpu["budget_bytes"] for gpu in
           [*ask(one, "budget", gpu=0), *ask(one, "budget", gpu=1)]], [64 * MIB] * 4, "and holds")
    equal(program.do("alloc 0 1 100000000"), "failed", "for the program")
    equal(ask(one, "config.set", key="pool.budget", value="0", context=1)[0]["context"], 1,
          "of one context alone")
    equal(program.do("alloc 0 1 100000000"), "done", "it may change again")
    equal(ask(one, "config.get", key="pool.budget", context=2)[0]["value"], "64MiB", "not the other")
    for params, part in [({"key": "pool.bugdet", "value": "1"}, "did you mean pool.budget?"),
                         ({"key": "pool.budget", "value": "much"}, "'much' is not a size"),
                         ({"key": "map.aliases", "value": "0"}, "out of range"),
                         ({"key": "map.aliases", "value": "x" * 5000}, "not a whole number"),
                         ({"key": "x" * 5000, "value": "1"}, "unknown key"),
                         ({"key": "map.aliases"}, "key and value"),
                         ({"value": "3"}, "key and value"),
                         ({"key": "map.aliases", "value": 3}, "value is no text"),
                         ({"key": "map.aliases", "value": "3", "context": 9}, "no such context")]:
        code, said = fault(one, "config.set", **params)
        equal(code, PARAMETERS, f"refused: {part}")
        has(said, part, "in words")
    code, said = fault(one, "config.set", key="soft.gpus", value="3")
    equal(code, REFUSED, "a key that stays")
    has(said, "cannot change while the program runs", "is refused by the library")
    equal(ask(one, "config.set", key="log.level", value="debug")[0]["value"], "debug", "what it says")
    equal(ask(one, "config.set", key="log.level", value="none")[0]["value"], "none", "too")
    equal(ask(one, "config.reload")[1]["findings"], [], "who reads no file reads none again")
    equal(program.end(), "", "and nobody was told anything")


def check_away(room):
    program = Watched(room, GLAKE_SOFT_MEMORY="256MiB")
    program.do("open")
    equal(program.do("alloc 0 2 20000000"), "done", "two blocks")
    addresses = program.do("addresses").split()[:-1]
    one = program.connect()
    for address in map(int, addresses):
        equal(ask(one, "spill", address=address), {"context": 1, "address": address}, "one is away")
    code, said = fault(one, "spill", address=int(addresses[0]))
    equal((code, "away" in said), (REFUSED, True), "which is refused the second time")
    gpu = ask(one, "stats")["contexts"][0]["gpus"][0]
    equal(gpu["away_bytes"], 40000000, "it is counted")
    equal(ask(one, "fetch", address=int(addresses[0]))["context"], 1, "and is back")
    code, said = fault(one, "fetch", address=int(addresses[0]))
    equal(code, REFUSED, "which is refused likewise")
    done_ = ask(one, "suspend", gpu=0)[0]
    equal((done_["moved_bytes"], done_["moved_blocks"]), (20000000, 1), "all is away")
    equal(program.do("alloc 0 1 1000000"), "failed", "there is no memory then")
    equal(ask(one, "resume")[0]["moved_blocks"], 1, "and is back")
    equal(program.do("alloc 0 1 1000000"), "done", "and there is")
    code, said = fault(one, "resume", lazy=True)
    equal(code, REFUSED, "a GPU that is not suspended, lazily too")
    has(said, "suspended", "in words")
    code, said = fault(one, "resume")
    equal(code, REFUSED, "a GPU that is not suspended")
    has(said, "suspended", "in words")
    for method, params in [("spill", {}), ("spill", {"address": 1}), ("fetch", {"address": 0}),
                           ("fetch", {"address": 1 << 63}), ("spill", {"address": "0x10"}),
                           ("spill", {"address": int(addresses[0]), "context": 7}),
                           ("suspend", {"gpu": 4}), ("suspend", {"in_place": 1}),
                           ("suspend", {"lazy": True}), ("resume", {"lazy": "yes"}),
                           ("resume", {"lazy": None}), ("resume", {"in_place": True}), ("resume", {"context": 3})]:
        equal(ask(one, method, **params), PARAMETERS,
              f"{method} {params}".replace(addresses[0], "ADDRESS"))
    equal(program.do("open"), "done", "another context")
    equal(ask(one, "spill", address=int(addresses[0]), context=2), PARAMETERS, "has other memory")
    equal(program.end(), "", "and nobody was told anything")


def check_in_place(room):
    """Contents that stay at their addresses while the GPU is suspended, and behind that."""
    program = Watched(room, GLAKE_SOFT_MEMORY="256MiB")
    program.do("open")
    equal(program.do("alloc 0 2 20000000"), "done", "two blocks")
    one = program.connect()

    def figures():
        gpu = ask(one, "stats")["contexts"][0]["gpus"][0]
        return gpu["away_bytes"], gpu["placed_bytes"]

    equal(ask(one, "suspend", gpu=0, in_place=True)[0]["moved_blocks"], 2, "both are on the host")
    equal(figures(), (0, 40000000), "in place")
    equal(program.do("alloc 0 1 1000000"), "failed", "the GPU is suspended")
    moved = ask(one, "resume", lazy=True)[0]
    equal(moved["moved_blocks"], 0, "which ends with nothing moved")
    equal((moved["stayed_blocks"], moved["stayed_bytes"]), (2, 40000000), "and both there")
    equal(figures(), (0, 40000000), "all is where it was")
    equal(program.do("alloc 0 1 1000000"), "done", "and there is memory")
    equal(ask(one, "suspend", in_place=False)[0]["moved_blocks"], 1, "the new block goes away")
    equal(figures(), (1000000, 40000000), "and the others stay")
    equal(ask(one, "resume", lazy=False)[0]["moved_blocks"], 3, "eagerly all come")
    equal(figures(), (0, 0), "to the GPU")
    equal(program.end(), "", "and nobody was told anything")


def check_long(room):
    """An answer that takes long is about one context, and others come and go."""
    program = Watched(room, GLAKE_SOFT_MEMORY="1GiB",
                      GLAKE_DRIVER_FAULT="release:from=1:delay=10000000")  # until it is told to go on
    program.do("open")
    program.do("open")
    equal(program.do("alloc 0 1 600000000"), "done", "much memory")
    equal(program.do("free"), "done", "is free")
    one = program.connect()
    one.sendall(b'{"jsonrpc":"2.0","id":1,"method":"trim","params":{"context":1}}\n')
    equal(program.run.stdout.readline(), "held\n", "an answer takes its time")
    equal(program.do("close"), "done", "another context closes")
    equal(program.do("open"), "done", "and one opens")
    equal(program.do("close"), "done", "and closes")
    equal(select.select([one], [], [], 0)[0], [], "while the answer is under way")
    program.start("close")
    os.kill(program.pid, signal.SIGUSR1)
    got = b""
    while b"\n" not in got:
        part = one.recv(4096)
        if not part:
            break
        got += part
    has(got.decode(), '"released_bytes":', "who closes its own waits for it")
    equal(program.run.stdout.readline(), "done\n", "and closes then")
    equal(room.names(), [], "with the socket")
    equal(program.end(), "", "and nobody was told anything")


def main():
    start()
    with Room() as room:
        check_set(room)
        check_away(room)
        check_in_place(room)
        check_long(room)
    done()


main()
