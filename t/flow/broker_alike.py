# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Equal pages of sealed blocks that lie in different processes exist once, through a broker: which are found, whose bytes
they are, what every word of them is after each step, and after the death of either process or of the broker.
"""
import random
import signal

from brokered import Broker, Client
from tap import done, equal, has, ok, start, until

PAGE = 2 << 20
BASE, TUNE = "abcdefghij", "abcxefghij"


def books(broker):
    """Pages that are held, those that are nobody's, those in common, and those saved."""
    said = broker.books()
    return [said[name] // PAGE for name in ("held", "published", "common", "saved")]


def clients(broker, count, *settings):
    """Who want leave for no page more than they have."""
    return [Client(broker, "share.chunk=2MiB", "pool.large_page=8MiB", *settings) for _ in range(count)]


def seal(client, kinds, expect, why):
    """A block, sealed: pages saved, shared before, left, and taken for equal."""
    n = client.do("pages " + kinds)
    equal(client.do("seal " + n), expect, why)
    return n


def right(why, *blocks):
    equal([client.do(f"has {n} {kinds}") for client, n, kinds in blocks], ["right"] * len(blocks), why)


def ends(broker, *users):
    for client in users:
        equal(client.end(), "closed 0", "it ends")
    equal(books(broker), [0, 0, 0, 0], "with all")


def check_two(broker):
    one, two, three = clients(broker, 3)
    a = seal(one, BASE, "0 0 0 0", "the first one saves nothing")
    b = seal(two, TUNE, "9 0 0 0", "a fine-tune in another process has nine of ten pages from there")
    right("every word is there", (one, a, BASE), (two, b, TUNE))
    equal(two.do("live").split()[0], "1", "one page of it is live")
    held, published, alike, saved = books(broker)
    ok(held <= 11 + 4 and not published, "eleven pages are held", held, published)
    equal((alike, saved), (11, 9), "which the broker tells")
    has(broker.tool().stdout, "22.0 MiB, and 18.0 MiB saved", "and for people")
    equal(two.do("seal " + b), "0 9 0 0", "again, nothing is new")
    c = seal(two, TUNE, "10 0 0 0", "the same once more, in one of the two")
    equal(books(broker)[2:], [11, 9], "is nothing to the broker")
    d = seal(three, TUNE, "10 0 0 0", "and in a third")
    equal(books(broker)[2:], [11, 19], "is")
    equal(two.do("unseal " + b), "0", "one has pages of its own")
    equal(two.do(f"page {b} 0 z"), "0", "and writes one")
    right("which is nobody else's", (one, a, BASE), (two, b, "z" + TUNE[1:]), (two, c, TUNE), (three, d, TUNE))
    equal([client.do("books") for client in (one, two, three)], ["0"] * 3, "the driver has what the books say")
    ends(broker, three, two, one)


def check_payer(broker):
    """A page is its maker's, and nobody's when it has left, until the last one leaves."""
    one, two = clients(broker, 2)
    a = seal(one, BASE, "0 0 0 0", "a block")
    b = seal(two, TUNE, "9 0 0 0", "and another")
    equal(one.do("free " + a), "0", "the first one goes")
    equal(one.do("trim"), "0", "and all that its process does not use")
    held, published, alike, saved = books(broker)
    ok(published == 9 and held <= 1 + 4, "what the other has is nobody's bytes", held, published)
    equal((alike, saved), (10, 0), "and in common with none")
    right("with every word", (two, b, TUNE))
    c = seal(one, BASE, "9 0 0 0", "the first one has it from there")
    right("with every word", (one, c, BASE))
    equal(books(broker)[1:], [9, 11, 9], "and whose they are does not change")
    two.do("free " + b)
    two.do("trim")
    equal(books(broker)[1:], [9, 10, 0], "nor when one goes")
    equal(one.end(), "closed 0", "it ends")
    equal(two.end(), "closed 0", "it ends")
    equal(books(broker), [0, 0, 0, 0], "with the last one they are gone")


def check_death(broker):
    one, two, three = clients(broker, 3)
    a = seal(one, BASE, "0 0 0 0", "a block")
    b = seal(two, TUNE, "9 0 0 0", "and another")
    right("each is right", (one, a, BASE), (two, b, TUNE))
    one.kill()
    one.run.wait()
    ok(until(lambda: books(broker)[1] == 9), "the first one is killed: what the other has is nobody's bytes")
    right("with every word", (two, b, TUNE))
    c = seal(three, BASE, "9 0 0 0", "a third one has it from there")
    two.kill()
    two.run.wait()
    ok(until(lambda: books(broker)[2:] == [10, 0]), "the second one too")
    right("with every word", (three, c, BASE))
    equal(three.do("unseal " + c), "0", "the last one has its own")
    right("with every word", (three, c, BASE))
    three.do("trim")
    equal(books(broker)[1:], [0, 0, 0], "and nothing is in common")
    three.end()


def check_death_between(broker):
    """The first one is killed while the second looks: it has what it had, of its own or not."""
    for number in (signal.SIGKILL, None):
        one, two = clients(broker, 2)
        seal(one, BASE, "0 0 0 0", "a block")
        b = two.do("pages " + TUNE)
        broker.tell(signal.SIGSTOP)
        two.start("seal " + b)
        if number:
            one.kill(number)
            one.run.wait()
        broker.tell(signal.SIGCONT)
        said = two.answer()
        ok(said in ("0 0 0 0", "9 0 0 0"), "it is sealed", said)
        right("with every word", (two, b, TUNE))
        ok(until(lambda: two.do("seal " + b) in ("0 0 0 0", "0 9 0 0", "9 0 0 0")), "and again")
        right("with every word", (two, b, TUNE))
        for client in (one, two)[bool(number):]:
            equal(client.end(), "closed 0", "it ends")
        ok(until(lambda: books(broker) == [0, 0, 0, 0]), "with all", books(broker))


def check_number(broker):
    """A number that is another's says nothing yet."""
    one, two, three = clients(broker, 3)
    a = one.do("pages ab")
    equal((one.do(f"twist {a} 0"), one.do("seal " + a)), ("0", "0 0 0 0"), "other contents of one number")
    b = seal(two, "abc", "1 0 1 1", "are found out, and the page stays its own")
    c = seal(three, "abc", "2 0 1 1", "as often as they are looked at")
    right("with every word", (two, b, "abc"), (three, c, "abc"))
    has(one.do(f"has {a} ab"), "wrong at page 0", "and those of the other")
    ends(broker, one, two, three)


def check_away(broker):
    """All of one goes to the host and comes back: what it had from others is its own then."""
    one, two = clients(broker, 2)
    a = seal(one, BASE, "0 0 0 0", "a block")
    b = seal(two, TUNE, "9 0 0 0", "and another")
    c = seal(two, "abc", "3 0 0 0", "and a third")
    equal(two.do("suspend"), "0", "one process is suspended")
    equal(books(broker)[2:], [10, 0], "and has nothing in common")
    right("the other is right", (one, a, BASE))
    equal(two.do("resume"), "0", "it comes back")
    right("with every word", (one, a, BASE), (two, b, TUNE), (two, c, "abc"))
    equal(two.do("live").split()[0], "10", "on pages of its own, each of them live once")
    equal(two.do("books"), "0", "as the books say")
    equal(two.do("seal " + b), "6 3 0 0", "those that two blocks of it have stay where they are")
    two.do("free " + c)
    equal(two.do("seal " + b), "3 6 0 0", "and are found again")
    right("with every word", (one, a, BASE), (two, b, TUNE))
    two.do("free " + b)
    equal(two.do("live").split()[0], "0", "nothing is live then")
    equal(one.do("suspend"), "0", "the first one is suspended too")
    equal(one.do("resume"), "0", "it comes back")
    right("with every word", (one, a, BASE))
    ends(broker, one, two)


def check_restart(broker):
    one, two = clients(broker, 2)
    a = seal(one, BASE, "0 0 0 0", "a block")
    b = seal(two, TUNE, "9 0 0 0", "and another")
    broker.end()
    right("the broker ends, and every word is there", (one, a, BASE), (two, b, TUNE))
    broker.begin()
    ok(until(lambda: broker.books() and len(broker.books()["clients"]) == 2), "another one begins")
    held, published, alike, _ = books(broker)
    ok(held >= 20 and not published, "each counts what it has as its own", held, published)
    equal(alike, 0, "and it knows of nothing in common")
    equal(one.do("seal " + a), "0 0 0 0", "until they are looked at again")
    equal(two.do("seal " + b), "0 9 0 0", "those of others stay")
    c = seal(two, BASE, "10 0 0 0", "which go on being shared")
    right("with every word", (one, a, BASE), (two, b, TUNE), (two, c, BASE))
    two.do("free " + b)
    two.do("free " + c)
    two.do("trim")
    ok(books(broker)[0] <= 10 + 4, "and are given when they are left", books(broker))
    b = seal(two, TUNE, "9 0 0 0", "what is sealed then has them from the other again")
    right("with every word", (one, a, BASE), (two, b, TUNE))
    ends(broker, one, two)


def check_alone(broker):
    """Pages that are not made for others are each one's own."""
    one, two = clients(broker, 2, "pool.export=no")
    a = seal(one, BASE, "0 0 0 0", "a block")
    b = seal(two, TUNE, "0 0 0 0", "and another have nothing in common")
    right("with every word", (one, a, BASE), (two, b, TUNE))
    equal(books(broker)[2:], [0, 0], "nor anything at the broker")
    one.end()
    two.end()


def check_faults(broker):
    """Whatever the driver refuses, every word is there, and nothing is held in the end."""
    one, = clients(broker, 1)
    a = seal(one, BASE, "0 0 0 0", "a block")
    failed, saved = 0, []
    for call in ("create", "map", "set_access", "unmap", "release", "copy", "launch", "stream_sync", "import_fd", "export_fd"):
        wrong = []
        for nth in (1, 2, 3, 5, 9, 14):
            two, = clients(broker, 1, f"driver.fault={call}:nth={nth}:err=EIO", "log.level=none")
            n = two.do("pages " + TUNE)
            if n.startswith("refused"):
                n = two.do("pages " + TUNE)
            for step in ("seal", "unseal", "seal"):
                did = two.do(f"{step} {n}")
                failed += did.startswith("refused")
                if call == "import_fd" and nth == 1 and step == "seal":
                    saved.append(did)
                said = [client.do(f"has {block} {kinds}") for client, block, kinds in ((two, n, TUNE), (one, a, BASE))]
                if said != ["right"] * 2:
                    wrong.append((nth, step, said))
            two.do("free " + n)
            two.end()
        ok(not wrong, f"{call} is refused, and every word is there", wrong)
    equal(saved, ["9 0 0 0"] * 2, "what the driver does not take is taken the second time")
    ok(failed > 10, "of which calls of ours failed", failed)
    equal(one.end(), "closed 0", "it ends")
    ok(until(lambda: books(broker) == [0, 0, 0, 0]), "with all", books(broker))


def check_threads(broker):
    """Several threads of two processes at once."""
    both = clients(broker, 2)
    for i, client in enumerate(both):
        client.start(f"storm 40 {i * 7}")
    equal([client.answer() for client in both], ["right"] * 2, "threads that seal, unseal and free have each word")
    for client in both:
        equal(client.do("live").split()[0], "0", "nothing is live when all is freed")
        equal(client.do("books"), "0", "the driver has what the books say")
        equal(client.end(), "closed 0", "it ends")
    ok(until(lambda: books(broker) == [0, 0, 0, 0]), "with all", books(broker))


class Job:
    """A process and what its blocks have."""

    def __init__(self, broker):
        self.client, self.blocks, self.sealed, self.away = clients(broker, 1)[0], {}, set(), False

    def step(self, rand):
        what = rand.random()
        client = self.client
        if self.away or what < 0.05:
            equal(client.do("resume" if self.away else "suspend"), "0", "suspended, or resumed")
            self.away = not self.away
        elif what < 0.35 and len(self.blocks) < 4:
            kinds = "".join(rand.choice("abcdefgh") for _ in range(rand.randrange(1, 12)))
            self.blocks[client.do("pages " + kinds)] = kinds
        elif self.blocks:
            n = rand.choice(sorted(self.blocks))
            if n not in self.sealed:
                said = client.do("seal " + n)
                ok(not said.startswith("refused"), "sealed", said)
                self.sealed.add(n)
            elif what < 0.6:
                equal(client.do("unseal " + n), "0", "own pages")
                self.sealed.discard(n)
                kinds = self.blocks[n]
                at, kind = rand.randrange(len(kinds)), rand.choice("abcdefghij")
                client.do(f"page {n} {at} {kind}")
                self.blocks[n] = kinds[:at] + kind + kinds[at + 1:]
            elif what < 0.75:
                client.do("seal " + n)
            elif what < 0.9:
                equal(client.do("free " + n), "0", "freed")
                del self.blocks[n]
                self.sealed.discard(n)
            else:
                client.do("trim")

    def right(self):
        return self.away or all(self.client.do(f"has {n} {kinds}") == "right" for n, kinds in self.blocks.items())


def check_random(broker, seed):
    rand = random.Random(seed)
    jobs = [Job(broker) for _ in range(3)]
    for step in range(60):
        i = rand.randrange(len(jobs))
        if rand.random() < 0.06:
            jobs[i].client.kill()
            jobs[i].client.run.wait()
            jobs[i] = Job(broker)
        jobs[i].step(rand)
        if not all(job.right() for job in jobs):
            ok(False, "every word is right", seed, step)
            break
    for job in jobs:
        if job.away:
            job.client.do("resume")
        ok(job.right(), "every word is right", seed)
        live = len(set("".join(job.blocks.values())))
        ok(int(job.client.do("live").split()[0]) <= sum(map(len, job.blocks.values())), "live", live)
        for n in job.blocks:
            job.client.do("free " + n)
        equal(job.client.do("live").split()[0], "0", "nothing is live when all is freed")
        equal(job.client.do("books"), "0", "the driver has what the books say")
        equal(job.client.end(), "closed 0", "it ends")
    ok(until(lambda: books(broker) == [0, 0, 0, 0]), "with all", books(broker))


def main():
    start()
    with Broker() as broker:
        descriptors = broker.descriptors()
        check_two(broker)
        check_payer(broker)
        check_death(broker)
        check_death_between(broker)
        check_number(broker)
        check_away(broker)
        check_alone(broker)
        check_faults(broker)
        check_threads(broker)
        for seed in range(3):
            check_random(broker, seed)
        ok(until(lambda: broker.descriptors() == descriptors), "no descriptor is left", broker.descriptors())
        check_restart(broker)
        equal(broker.end(), ("", 0), "the broker ends, and has said nothing")
    done()


main()
