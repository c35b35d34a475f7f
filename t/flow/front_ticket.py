# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Tickets and prefetches of the Python module, on the software device, started as front_glake.py does.

    front_ticket.py SOURCE PLUGIN
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
''', env={"GLAKE_POLICY_TARGET": "1.04"})
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


def ranges(folder):
    """A part of a block goes and comes, and the rest stays in use."""
    said = front_glake.python(folder, '''
size = 8 << 20
p = alloc(size, 0, None)
ctypes.memset(p, 9, size)
glake.spill(p, offset=2 << 20, bytes=4 << 20)
away = [glake.stats(0)["away"]]
ctypes.memset(p, 7, 2 << 20)
with glake.fetch(p, offset=4 << 20, bytes=1, ticket=True) as ticket:
    away += [ticket.wait(60), ticket.info()["bytes"], glake.stats(0)["away"]]
glake.spill(p, offset=6 << 20)
away.append(glake.stats(0)["away"])
glake.fetch(p)
away += [glake.stats(0)["away"], ctypes.string_at(p, size) == bytes([7]) * (2 << 20) + bytes([9]) * (6 << 20)]
print(json.dumps(away))
print(json.dumps([refused(glake.spill, p, offset=-1), refused(glake.spill, p, offset=7 << 20, bytes=2 << 20),
                  refused(glake.spill, p, bytes=5)]))
''')
    if not tap.ok(isinstance(said, list) and len(said) == 2, "ranges", said):
        return
    away, refusals = said
    tap.equal(away, [4 << 20, True, 1, 2 << 20, 4 << 20, 0, True], "ranges go and come")
    for text, want in zip(refusals, ("are no range", "are no range of a block", "hold no page")):
        tap.has(text, want, f"refused: {want}")


def main():
    tap.start()
    with tempfile.TemporaryDirectory() as folder:
        tickets(folder)
        ranges(folder)
    tap.done()


if __name__ == "__main__":
    main()
