# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Several processes on one GPU by leave of a broker: none holds more than it was given leave for, what
lies idle in one goes to another that wants it, guarantees hold, and what a process held that was
killed is had by others.
"""
import os

from brokered import Broker, Client
from tap import done, equal, has, ok, start

NONE, HERE, AWAY, ALONE = range(4)


def check_alone(broker):
    client = Client(broker, "share.broker=")
    equal(client.lease()["state"], NONE, "without share.broker there is none")
    equal(client.do("alloc 2000"), "0", "and no limit")
    equal(client.end(), "closed 0", "it ends")
    equal(broker.books(), None, "and the broker does not know of it")


def check_leave(broker):
    one, two = Client(broker), Client(broker)
    equal(one.do("alloc 600"), "0", "a client has 600 of 1000 MiB")
    lease = one.lease()
    equal((lease["state"], lease["helper"]), (HERE, 1), "by leave, with a thread that hears")
    ok(600 <= lease["leased"] <= 604 + 16, "for little more than it holds", lease)
    equal(lease["leased"] - lease["left"], broker.books()["held"] // 2**20 - lease["left"],
          "which the broker says too")
    two.start("alloc 600")
    ok(broker.waiting(), "another one that wants as much waits")
    equal(one.lease()["leased"], lease["leased"], "for none that is in use is taken")
    equal(one.do("free 0"), "0", "the first one frees it, and does nothing more")
    one.start("lease")
    equal(two.answer(), "0", "the other one has it")
    one.answer()
    equal(two.do("check 0"), "right", "with its own contents")
    ok(one.lease()["asked"] >= 1, "the first one was asked")
    books = broker.books()
    ok(books["held"] + books["free"] == books["total"], "all of it is somewhere", books)
    text = broker.tool().stdout
    has(text, "broker_program", "glakectl broker names them")
    equal(two.end(), "closed 0", "one ends")
    ok(broker.books()["held"] // 2**20 == one.lease()["leased"], "and its leave comes back")
    equal(one.end(), "closed 0", "the other one too")
    equal(broker.books()["held"], 0, "nothing is held then")


def check_refusal(broker):
    one, two = Client(broker), Client(broker, "share.wait=50ms")
    one.do("alloc 900")
    said = two.do("alloc 300")
    has(said, "refused -12", "what nobody gives in time is refused")
    has(said, f"({one.pid}) has 9", "with who has it")
    equal(two.do("alloc 40"), "0", "what is left is had")
    has(two.do("alloc 1200"), "refused -12", "more than there is is refused")
    three = Client(broker, "share.wait=0")
    has(three.do("alloc 300"), "refused -12", "without a time to wait it is refused at once")
    equal(three.lease()["state"], HERE, "by the broker, which is not left for it")
    three.end()
    one.end()
    equal(two.do("alloc 800"), "1", "what an ended one had is had")
    two.end()


def check_guarantee(broker):
    one = Client(broker, "share.wait=50ms")
    two = Client(broker, "share.least=400MiB", "share.most=500MiB")
    equal([two.lease()[name] for name in ("least", "most")], [400, 500], "a guarantee is had")
    has(one.do("alloc 700"), "refused", "nobody else has what is guaranteed")
    equal(one.do("alloc 500"), "0", "but all else")
    equal(two.do("alloc 380"), "0", "it is there at once")
    has(two.do("alloc 200"), "refused", "nobody has more than the most")
    three = Client(broker, "share.least=800MiB")
    ok(three.lease()["least"] <= 600, "guarantees are no more than there is", three.lease())
    for client in (one, two, three):
        client.end()


def check_calls(broker):
    """Without a thread the next miss hears."""
    one, two = Client(broker, "share.helper=no", "pool.large_page=8MiB"), Client(broker)
    one.do("alloc 800")
    equal(one.lease()["helper"], 0, "no thread hears")
    has(broker.tool().stdout, "calls", "which the broker says")
    one.do("free 0")
    two.start("alloc 600")
    ok(broker.waiting(), "what lies idle there is not given")
    equal(one.do("whole 2"), "0", "until it has a request that wants the driver")
    equal(two.answer(), "0", "then the other one has it")
    two.end()
    one.end()


def check_turns(broker):
    """Two whose workspaces would not both find room use the same memory by turns, each at addresses of its own."""
    one, two = (Client(broker, "share.wait=50ms") for _ in range(2))
    for client in (one, two):
        equal(client.do("alloc 100"), "0", "what lasts")
        equal(client.do("tag workspace"), "0", "a workspace")
    equal(one.do("alloc 700"), "1", "that has 700 of 1000 MiB")
    has(two.do("alloc 700"), "refused -12", "where another one has as much")
    for turn in range(2):
        equal(one.do("away"), "0", "its contents need not last")
        ok(one.lease()["leased"] <= 100 + 2 + 4, "and its leave is the broker's", one.lease())
        equal(two.do("again" if turn else "alloc 700"), "0" if turn else "1", "another one has it")
        equal(two.do(f"fill 1 {turn}"), "0", "which writes to it")
        has(one.do("again"), "refused -12", "the first one does not have it meanwhile")
        equal(two.do(f"is 1 {turn}"), "right", "and disturbs nothing")
        equal(two.do("away"), "0", "then the other one's need not last")
        equal(one.do("again"), "0", "and the first one has its memory again")
        equal(one.do(f"fill 1 {turn + 9}"), "0", "at the same addresses")
        equal(one.do(f"is 1 {turn + 9}"), "right", "as its own")
    for client in (one, two):
        equal(client.do("check 0"), "right", "what lasts is there")
        equal(client.end(), "closed 0", "it ends")


def check_pressure(broker, *settings):
    """What is used goes to another one where the program frees it when it is asked, or has called it cold."""
    one, two = Client(broker, *settings), Client(broker)
    for n in range(3):
        equal(one.do("alloc 250"), str(n), "three blocks")
    equal(one.do("room 0"), "0", "of which the program frees one when it is asked")
    equal(one.do("cold 1"), "0", "and one is cold")
    one.do("alloc 20")
    one.do("free 3")
    two.start("alloc 400")
    if settings:
        ok(broker.waiting(), "another one that wants more than is left waits")
        equal(one.do("capture 2"), "0", "while the first one captures a graph")
        equal(one.do("asked"), "0 0 0", "for which its program is not asked")
        equal(one.do("whole 2"), "3", "until the first one has a request that is no hit")
    equal(two.answer(), "0", "the other one has it")
    times, want, timed = map(int, one.do("asked").split())
    ok(times >= 1 and 0 < want <= 400, "the program was asked for what there was too little of", want)
    equal(timed, 1, "for an answer in time, and with no stream")
    equal(one.do("check 1"), "right", "the cold one stays where that was enough")
    if not settings:
        equal(two.do("alloc 200"), "1", "the cold one goes for more")
        equal(two.do("check 1"), "right", "which is another's own")
    equal(one.do("check 2"), "right", "and what is used stays")
    equal(two.do("check 0"), "right", "another's is its own")
    equal(two.end(), "closed 0", "it ends")
    has(one.do("fetch 1"), "-114" if settings else "0", "the cold one is had back")
    equal(one.do("check 1"), "right", "with all that was in it")
    equal(one.end(), "closed 0", "it ends")


def check_death(broker):
    one, two = Client(broker), Client(broker)
    one.do("alloc 900")
    child = one.do("fork")
    two.start("alloc 800")
    broker.waiting()
    one.kill()
    equal(two.answer(), "0", "what a killed process held is had, while its child has its sockets")
    one.run.wait()
    os.kill(int(child), 9)
    equal(two.do("check 0"), "right", "and is memory as any")
    two.kill()
    two.run.wait()


def main():
    start()
    with Broker() as broker:
        check_alone(broker)
        check_leave(broker)
        check_refusal(broker)
        check_guarantee(broker)
        check_calls(broker)
        check_turns(broker)
        check_pressure(broker)
        check_pressure(broker, "share.helper=no", "pool.large_page=8MiB")
        check_death(broker)
        equal(broker.end(), ("", 0), "the broker ends, and has said nothing")
    done()


main()
