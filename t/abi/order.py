# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Who may include whom. The rooms of the library are the floors of one tower, and each stands
only on those below it; what is above stays unknown, so there are no cycles. A room shows one
header, its face; its other headers stay inside. A room may have parts, folders in it, which stand
on each other the same way. The tool and the front ends are users: they see the public headers.
Tests may see everything.
"""

import re

from tap import Tap
from tree import files, text

TOWER = "base driver numa uvm_bridge wire soft pool map stream tier share move cache guard kv watch api".split()
PARTS = {"map": ["page", "space"], "tier": ["io"], "front": ["preload"],
         "cache": ["bin", "graph", "arena", "managed", "tag"]}
USERS = {
    # need nothing of the library
    "tool": {"base/atomic.h", "base/clock.h", "base/conf_table.h", "base/json.h", "base/parse.h"},
    "front": {"base/atomic.h", "base/clock.h", "base/limit.h", "wire/wire.h"},  # nor do these
    "man": {"base/conf_table.h", "watch/figures.h"},
}
FACES = {
    "driver/driver.h",
    "driver/ops.h",  # what fills the table of operations, or wraps it, stands on these
    "driver/count.h",
    "driver/cuda.h",
    "soft/open.h",
    "soft/soft.h",
    "numa/topology.h",
    "uvm_bridge/uvm.h",
    "wire/wire.h",
    "pool/pool.h",
    "map/map.h",
    "stream/stream.h",
    "tier/hostpool.h",  # beside it, as an idea of its own
    "tier/tier.h",
    "tier/io/io.h",
    "share/share.h",
    "share/publish.h",  # beside it, as an idea of its own
    "move/move.h",
    "move/gpu.h",  # beside it, as ideas of their own
    "move/look.h",
    "cache/cache.h",
    "guard/guard.h",
    "kv/kv.h",
    "kv/planner.h",  # beside it, as an idea of its own
    "cache/survey.h",  # what figures are made of
    "cache/bin/hit.h",  # inlined into the public functions
    "watch/counter.h",
    "watch/figures.h",
    "watch/rpc.h",
    "watch/watch.h",
    "api/context.h",
}
FOR_ALL = {"watch/counter.h"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<((?:glake|[a-z_]+)/[^>]+)>)', re.M)


def room_of(name):
    """The room of a file of the library; None for tests and other files."""
    parts = name.split("/")
    if parts[0] == "lib" and len(parts) in (3, 4):
        return parts[1]
    if parts[0] in ("numa", "uvm_bridge") and len(parts) == 2:
        return parts[0]
    return "public" if name.startswith("include/glake/") else None


def part_of(path):
    """The part of its room that a file of the library lies in, lib/ left out; None for none."""
    parts = path.split("/")
    return parts[1] if len(parts) == 3 else None


def offence_inside(room, part, target):
    """The same for a target of the room itself."""
    other = part_of(target)
    for name in (part, other):
        if name and name not in PARTS.get(room, []):
            return f"{room} has no part called {name}"
    if not part or not other:
        return None
    above = PARTS[room].index(other) > PARTS[room].index(part)
    return f"{other} stands above {part}" if above else None


def offence(room, part, target):
    """Why a file of `room`, in its `part` or None, may not include `target`, or None."""
    if target.startswith("glake/"):
        return None
    if room == "public":
        return "a public header includes only public ones"
    other = target.split("/")[0] if "/" in target else room
    if other == room:
        return offence_inside(room, part, target)
    if room in USERS:
        return None if target in USERS[room] else "a user sees only include/glake"
    if room not in TOWER:
        return f"room {room} has no floor"
    if target in FOR_ALL:
        return None
    if other not in TOWER:
        return f"no room called {other}"
    if other == "base":
        return None
    if TOWER.index(other) > TOWER.index(room):
        return f"{other} stands above {room}"
    return None if target in FACES else f"not the face of {other}"


def offences(sources):
    """All findings in {name: text}."""
    rooms = {room for room in map(room_of, sources) if room}
    found = []
    for name, code in sorted(sources.items()):
        room = room_of(name)
        if not room:
            continue
        for match in INCLUDE.finditer(code):
            target = match[1] or match[2]
            if match[2] and target.split("/")[0] not in rooms | {"glake"}:
                continue  # a system header, as <sys/mman.h>
            part = part_of(name[len("lib/"):]) if name.startswith("lib/") else None
            why = offence(room, part, target)
            if why:
                line = code.count("\n", 0, match.start()) + 1
                found.append(f"{name}:{line}: {target}: {why}")
    return found


PLANTED = {
    "lib/base/error.c": "driver/driver.h",
    "lib/driver/cuda.c": "soft/soft.h",
    "lib/soft/soft.c": "pool/pool.h",
    "lib/pool/pool.c": "map/map.h",
    "lib/map/map.c": "pool/page.h",
    "lib/stream/limbo.c": "cache/cache.h",
    "lib/move/spill.c": "cache/cache.h",
    "lib/cache/fetch.c": "move/part.h",
    "lib/cache/cache.c": "api/context.h",
    "lib/api/memory.c": "cache/bin/row.h",
    "lib/stream/clock.c": "map/page/use.h",
    "lib/map/page/slot.c": "map/space/extent.h",
    "lib/cache/bin/quick.c": "cache/graph/graph.h",
    "lib/cache/arena/serve.c": "api/context.h",
    "lib/cache/attic/old.c": "cache/cache.h",
    "lib/pool/attic/old.h": "pool/pool.h",
    "lib/tool/main.c": "api/context.h",
    "lib/tool/open.c": "base/error.h",
    "lib/tool/replay.c": "wire/wire.h",
    "lib/wire/server.c": "pool/pool.h",
    "lib/front/torch.c": "base/json.h",
    "lib/attic/old.c": "base/error.h",
    "include/glake/glake.h": "base/error.h",
    "numa/topology.c": "uvm_bridge/uvm.h",
    "uvm_bridge/uvm.c": "numa/bits.h",
}
ALLOWED = {
    "lib/base/conf.c": "watch/counter.h",
    "lib/driver/count.c": "watch/counter.h",
    "lib/pool/page.c": "pool/page.h",
    "lib/map/map.c": "driver/driver.h",
    "lib/api/memory.c": "cache/bin/hit.h",
    "lib/map/space/fit.c": "map/page/use.h",
    "lib/cache/arena/trim.c": "cache/graph/graph.h",
    "lib/cache/block.c": "cache/bin/quick.h",
    "lib/cache/fetch.c": "move/move.h",
    "lib/tool/info.c": "base/json.h",
    "lib/api/info.c": "numa/topology.h",
    "t/unit/pool/page.c": "pool/page.h",
}


def main():
    tap = Tap()
    sources = {
        name: text(name) for name in files()
        if name.endswith((".c", ".h", ".hpp")) and room_of(name)
    }
    tap.none(offences(sources), f"{len(sources)} files keep the order")
    for name, target in PLANTED.items():
        for code in (f'#include "{target}"\n', f'/* why */\n # include "{target}"\n'):
            tap.ok(offences({name: code}), f"found: {name} includes {target}")
    for name, target in ALLOWED.items():
        code = f'#include <stdint.h>\n#include <sys/mman.h>\n#include "{target}"\n'
        tap.none(offences({name: code}), f"allowed: {name} includes {target}")
    tap.done()


main()
