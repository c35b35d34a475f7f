# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Tickets and prefetches of the Python module, on the software device, started as front_glake.py does.

    front_ticket.py MODULE PLUGIN
"""

import tempfile

import front_glake
import tap


def tickets(folder):
    """How far contents are, and what comes before it is asked for."""
    said = front_glake.python(folder, '''
size = 3 << 20
p = alloc(size, 0, None)
ctypes.memset(p, 9, size)
with glake.spill(p, ticket=True) as ticket:
    asked = [ticket.wait(60), ticket.info()]
closed = refused(ticket.info)
hint = glake.prefetch(p, within=100, priority=3)
came = [hint.wait(), hint.info()["state"], hint.info()["kind"], glake.stats(0)["away"]]
copies = glake.stats(0)["driver_calls"]["copy"]
back = glake.fetch(p)
after = glake.stats(0)
came += [after["driver_calls"]["copy"] - copies, back, after["prefetch_early"],
         ctypes.string_at(p, size) == bytes([9]) * size]
print(json.dumps([asked, closed, came]))
glake.spill(p)
late = glake.prefetch(p, within=-1)
glake.budget(4 << 20)
waits = glake.prefetch(p)
states = [late.info()["state"], waits.info()["state"], waits.wait(0.001)]
waits.cancel()
print(json.dumps([states, refused(waits.wait), refused(waits.cancel), refused(
    glake.prefetch, p + 512), refused(glake.prefetch, alloc(1000, 0, None))]))
glake.budget(64 << 20)
alone = glake.fetch(p, ticket=True)
print(json.dumps([alone.wait(), alone.info()["kind"]]))
''')
    if not tap.ok(isinstance(said, list) and len(said) == 3, "tickets", said):
        return
    ((done, info), closed, came), (states, cancelled, again, inside, here), alone = said
    tap.equal([done, info["state"], info["kind"], info["bytes"], info["error"]],
              [True, "done", "spill", 3 << 20, 0], "a spill is waited for")
    tap.ok(0 < info["asked_ns"] <= info["begun_ns"] <= info["ended_ns"], "its times", info)
    tap.has(closed, "is no open ticket", "one that was closed says nothing")
    tap.equal(came, [True, "done", "prefetch", 0, 0, None, 1, True],
              "what was prefetched is fetched without a copy")
    tap.equal(states, ["cancelled", "queued", False], "one is too late, one has no room")
    for text, want in ((cancelled, "cancelled"), (again, "nothing can be cancelled"),
                       (inside, "inside a block"), (here, "is here")):
        tap.has(text, want, f"refused: {want}")
    tap.equal(alone, [True, "fetch"], "a fetch has a ticket too")


def main():
    tap.start()
    with tempfile.TemporaryDirectory() as folder:
        tickets(folder)
    tap.done()


if __name__ == "__main__":
    main()
