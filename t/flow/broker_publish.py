# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Contents that exist once, by name: one process publishes, others attach; who has them when one of them ends, or the
broker does; what is refused; and own pages in the place of those that are shared.
"""
import signal

from brokered import Broker, Client
from tap import done, equal, has, ok, skip, start, until

MIB = 1 << 20


def contents(broker):
    return broker.books()["contents"]


def sums(broker):
    books = broker.books()
    return books["held"] // MIB, books["published"] // MIB


def check_once(broker):
    one, two, three = Client(broker), Client(broker), Client(broker)
    has(two.do("attach model 7 0"), "refused -2", "what nobody has published is not there")
    equal(one.do("whole 400"), "0", "a block of its own")
    one.do("fill 0 5")
    equal(one.do("publish 0 model 7"), "0", "is published")
    equal(two.do("attach model 7 0"), f"0 {400 * MIB}", "another process attaches it")
    equal(two.do("is 0 5"), "right", "and has the contents")
    equal(three.do("attach model 0 0"), f"0 {400 * MIB}", "a third one too, whatever the stamp")
    equal(three.do("is 0 5"), "right", "with the contents")
    held, published = sums(broker)
    ok(400 <= held < 420 and not published, "which count once, as the publisher's", held, published)
    equal([item["users"] for item in contents(broker)], [3], "the broker knows who has them")
    has(two.do("attach model 8 0"), "refused -17", "those of another stamp are others")
    two.do("whole 10")
    has(two.do("publish 1 model 9"), "refused -17", "a name has one contents")
    has(two.do("publish 1 model 7"), "refused -17", "also the same again")
    equal(two.do("write 1"), "0", "and what was refused is written as before")
    one.do("alloc 3")
    has(one.do("publish 1 part 1"), "refused -22", "a block that shares pages is not published")
    one.kill()
    one.run.wait()
    ok(until(lambda: sums(broker)[1] == 400), "when the publisher dies they are the broker's", sums(broker))
    equal(two.do("is 0 5"), "right", "those who have them keep them")
    four = Client(broker)
    equal(four.do("attach model 7 0"), f"0 {400 * MIB}", "and others still attach")
    equal(four.do("is 0 5"), "right", "with the contents")
    equal(two.do("attach model 7 0"), f"2 {400 * MIB}", "one may have them twice")
    equal(two.do("detach 2"), "0", "and once again")
    equal([item["users"] for item in contents(broker)], [3], "which does not make it none")
    equal(two.do("detach 0"), "0", "one takes them down")
    has(two.do("detach 0"), "refused -22", "which is done once")
    again = two.do("attach model 7 0").split()[0]
    users = [item["users"] for item in contents(broker)]
    equal((two.do(f"end {again}"), users, [item["users"] for item in contents(broker)]), ("0", [3], [2]),
          "ended as an import, the broker knows too")
    three.end()
    four.kill()
    four.run.wait()
    ok(until(lambda: not contents(broker)), "when the last one has gone they are gone")
    two.end()
    equal(sums(broker), (0, 0), "with their bytes")


def check_together(broker):
    """Many names in few questions: all or none."""
    one, two = Client(broker), Client(broker)
    for n in range(40):
        equal(one.do("whole 2"), str(n), "a block")
        one.do(f"fill {n} {n}")
        if n != 35:
            one.do(f"publish {n} part{n} 7")
    has(two.do("together part 40 7"), "refused -2 part35: nothing is published by that name", "one that is not there")
    equal({item["users"] for item in contents(broker)}, {1}, "is the end of all")
    has(two.do("together part 35 8"), "refused -17 part0: other contents", "and so is another stamp")
    equal(one.do("publish 35 part35 7"), "0", "with all there")
    equal(two.do("together part 40 7"), "0", "they are attached")
    equal([two.do(f"is {n} {n}") for n in range(40)], ["right"] * 40, "each with its contents")
    equal({item["users"] for item in contents(broker)}, {2}, "once")
    equal(two.do("together part 3 0"), "40", "and again, of any stamp")
    equal([two.do(f"detach {n}") for n in range(43)], ["0"] * 43, "each is taken down for itself")
    equal({item["users"] for item in contents(broker)}, {1}, "and had no more")
    has(two.do("together " + "x" * 191 + " 2 0"), "refused -22", "a name is no longer than names are")
    for client in (one, two):
        client.end()
    equal(sums(broker), (0, 0), "nothing is left")


def check_unanswered(broker):
    """What a broker that stands still has heard may be another's later: it is published."""
    one, two = Client(broker), Client(broker)
    one.do("whole 8")
    one.do("fill 0 5")
    broker.tell(signal.SIGSTOP)
    equal(one.do("publish 0 model 7"), "0", "what had no answer is published")
    broker.tell(signal.SIGCONT)
    ok(until(lambda: two.do("attach model 7 0") == f"0 {8 * MIB}"), "for others to have")
    equal(two.do("is 0 5"), "right", "with the contents")
    ok(until(lambda: [item["users"] for item in contents(broker)] == [2]), "of both", contents(broker))
    for client in (one, two):
        client.end()
    equal(sums(broker), (0, 0), "nothing is left")


def check_load_once(broker):
    one, two, three = Client(broker), Client(broker), Client(broker)
    has(one.do("attach model 7 1"), "refused -2", "one is told to load")
    has(one.do("attach model 7 1"), "refused -2", "as often as it asks")
    has(two.do("attach model 7 1"), "refused -11", "the others are told to come again")
    two.do("whole 8")
    has(two.do("publish 0 model 7"), "refused -17", "and do not publish in its place")
    equal(one.do("drop model"), "0", "one that gives it up")
    has(two.do("attach model 7 1"), "refused -2", "is followed by the next")
    two.kill()
    two.run.wait()
    ok(until(lambda: three.do("attach model 7 1").startswith("refused -2 ")),
       "and so is one that dies before it has published")
    three.do("whole 16")
    three.do("fill 0 9")
    equal(three.do("publish 0 model 7"), "0", "who then does")
    equal(one.do("attach model 7 1"), f"0 {16 * MIB}", "so that the others have it")
    equal(one.do("is 0 9"), "right", "with the contents")
    one.end()
    three.end()


def check_load_once_again(broker):
    """The broker ends while one loads and another waits for that."""
    def claim(client, name):
        """As a broker answers that is there."""
        return until(lambda: said if "is away" not in (said := client.do(f"attach {name} 7 1")) else None)

    one, two, three = (Client(broker, "share.helper=no") for _ in range(3))
    for client in (one, two, three):
        client.do("alloc 1")
    one.do("attach model 7 1")
    has(two.do("attach model 7 1"), "refused -11", "one waits for another that loads")
    broker.end()
    broker.begin()
    has(claim(two, "model"), "refused -11", "of the next broker it does not get the claim")
    has(claim(one, "other"), "refused -2", "the other comes back")
    has(claim(three, "model"), "refused -11", "and has what it claimed")
    one.do("whole 8")
    one.do("fill 1 4")
    equal(one.do("publish 1 model 7"), "0", "which it publishes")
    equal(two.do("attach model 7 1"), f"1 {8 * MIB}", "so that the others have it")
    equal(two.do("is 1 4"), "right", "with the contents")
    broker.end()
    has(one.do("drop other"), "refused -11", "a claim that is given up while the broker is away")
    broker.begin()
    claim(one, "third")
    has(claim(three, "other"), "refused -2", "is nobody's when it is back")
    for client in (one, two, three):
        client.end()


def check_unseal(broker):
    one, two = Client(broker), Client(broker, "share.wait=50ms")
    one.do("whole 200")
    one.do("fill 0 1")
    one.do("publish 0 model 0")
    two.do("attach model 0 0")
    two.do("alloc 700")
    has(two.do("unseal 0"), "refused -12", "without room for own pages nothing changes")
    equal(two.do("is 0 1"), "right", "the contents are there")
    equal(contents(broker)[0]["users"], 2, "and are shared")
    two.do("free 1")
    equal(two.do("unseal 0"), "0", "with room it has its own")
    equal(two.do("is 0 1"), "right", "with the contents")
    two.do("fill 0 2")
    equal((one.do("is 0 1"), two.do("is 0 2")), ("right", "right"), "which each writes for itself")
    equal(contents(broker)[0]["users"], 1, "they are shared no more")
    has(two.do("detach 0"), "refused -22", "nor attached")
    equal(two.do("end 0"), "0", "but an import, which is ended")
    one.end()
    two.end()
    equal(sums(broker), (0, 0), "nothing is left")


def check_restart(broker):
    one, two = Client(broker), Client(broker)
    one.do("whole 100")
    one.do("fill 0 3")
    one.do("publish 0 model 7")
    two.do("attach model 7 0")
    broker.end()
    broker.begin()
    ok(until(lambda: broker.books() and [item["users"] for item in contents(broker)] == [2]),
       "a broker that comes back has what was published")
    three = Client(broker)
    equal(three.do("attach model 7 0"), f"0 {100 * MIB}", "others attach it")
    equal(three.do("is 0 3"), "right", "with the contents")
    held, published = sums(broker)
    ok(100 <= held < 120 and not published, "which count once", held, published)
    for client in (one, two, three):
        client.end()
    equal(sums(broker), (0, 0), "nothing is left")


def check_smaller(broker):
    one = Client(broker, "share.wait=50ms")
    one.do("whole 100")
    one.do("publish 0 model 7")
    broker.end()
    broker.keys["GLAKE_SHARE_TOTAL"] = "50MiB"
    broker.begin()
    until(broker.books)
    has(one.do("alloc 10"), "refused -12", "a broker that has less than is published is one all the same")
    equal((broker.books()["held"] // MIB >= 100, contents(broker)), (True, []), "but does not keep that for others")
    equal(one.end(), "closed 0", "the publisher ends")


def check_numbers(broker):
    """With security.level=3 contents that somebody writes all the same are found out."""
    one, two, three = (Client(broker, "security.level=3") for _ in range(3))
    if one.said != "open":
        skip("contents with a number", one.said)
        return
    plain = Client(broker)
    one.do("whole 8")
    one.do("fill 0 5")
    equal(one.do("publish 0 model 7"), "0", "contents with a number are published")
    equal(two.do("attach model 7 0"), f"0 {8 * MIB}", "and attached")
    equal(plain.do("attach model 7 0"), f"0 {8 * MIB}", "also where nobody asks for it")
    equal([client.do("books") for client in (one, two, plain)], ["0"] * 3, "each finds them as they were")
    one.do("fill 0 6")
    has(three.do("attach model 7 0"), "model is not what it was", "what its publisher writes is refused")
    equal(contents(broker)[0]["users"], 3, "and not had")
    has(two.do("books"), "refused -5 what is published as model", "and found where it was attached")
    has(one.do("books"), "refused -5", "and by the one who wrote it")
    equal(plain.do("books"), "0", "who has no such level looks at nothing")
    one.do("fill 0 5")
    equal([client.do("books") for client in (one, two)], ["0"] * 2, "as they were, they are right")
    equal(three.do("attach model 7 0"), f"0 {8 * MIB}", "and had")
    plain.do("whole 4")
    plain.do("publish 1 other 0")
    equal(two.do("attach other 0 0"), f"1 {4 * MIB}", "contents without a number get one")
    plain.do("fill 1 3")
    has(two.do("books"), "published as other", "by which they are known")
    two.do("detach 1")
    equal(two.do("books"), "0", "until they are taken down")
    for client in (plain, three, two, one):
        equal(client.end(), "closed 0", "it ends")
    equal(sums(broker), (0, 0), "with all")


def main():
    start()
    with Broker() as broker:
        check_once(broker)
        check_together(broker)
        check_unanswered(broker)
        check_load_once(broker)
        check_load_once_again(broker)
        check_unseal(broker)
        check_numbers(broker)
        check_restart(broker)
        check_smaller(broker)
    done()


main()
