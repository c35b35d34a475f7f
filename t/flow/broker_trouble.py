# SPDX-License-Identifier: LGPL-2.1-or-later
"""
A broker that ends, comes back, stands still or is of another version, and clients that stand still, talk
nonsense or are of another user: what is promised for each, and nothing lost.
"""
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading

from brokered import DAEMON, PROGRAM, Broker, Client
from tap import done, equal, has, ok, skip, start, until

NONE, HERE, AWAY, ALONE = range(4)
MAGIC, VERSION = 0x464b4c47, 1
HELLO, WELCOME, REFUSED, WANT, GRANTED, GIVE, PUT, BYE, LIST, TEXT, SEEK, SOUGHT, OFFER, TAKEN, LEAVE, GETS = \
    0x100, 0x101, 0x102, 0x103, 0x104, 0x105, 0x108, 0x10d, 0x10e, 0x10f, 0x110, 0x111, 0x112, 0x113, 0x114, 0x115
MIB = 1 << 20
CLIENTS = 1024  # of a user who is not the broker's
WAITS = 512  # of a client
WAITS_OF_USER = 2048


def frame(kind, body=b"", fds=0, version=VERSION):
    return struct.pack("=IHHII", MAGIC, version, fds, kind, len(body)) + body


def check_restart(broker):
    one = Client(broker)
    one.do("alloc 400")
    broker.end()
    one.start("alloc 300")
    ok(until(lambda: one.run.poll() is None), "a client outlives its broker")
    broker.begin()
    equal(one.answer(), "1", "and growth waits for the next one")
    lease = one.lease()
    equal((lease["state"], lease["leased"]), (HERE, broker.books()["held"] // 2**20),
          "which knows what is held")
    ok(lease["leased"] >= 700, "all of it", lease)
    equal(one.do("check 0"), "right", "contents are what they were")
    broker.end(signal.SIGKILL)
    os.unlink(broker.path)
    broker.begin()
    ok(until(lambda: broker.books() and broker.books()["held"] // 2**20 == lease["leased"]),
       "the thread finds one that comes after a crash, without a request")
    one.end()
    equal(broker.books()["held"], 0, "nothing is held in the end")


def check_away(broker):
    broker.end()
    one = Client(broker, "share.wait=20ms")
    equal(one.said, "open", "a context opens without the broker")
    equal(one.lease()["state"], AWAY, "which is away")
    equal(one.do("alloc 1200"), "0", "after share.wait it goes on alone")
    equal(one.lease()["state"], ALONE, "and says so")
    two = Client(broker, "share.wait=20ms", "share.require=yes")
    has(two.do("alloc 10"), "is away", "or is refused where share.require says it")
    broker.begin()
    ok(until(lambda: two.lease()["state"] == HERE and one.lease()["state"] == HERE),
       "both find it when it is there")
    equal(broker.books()["held"] // 2**20, one.lease()["leased"], "it is told what was taken alone")
    has(two.do("alloc 10"), "refused -12", "and gives nothing that is not there")
    one.do("free 0")
    ok(until(lambda: two.do("alloc 10") == "0"), "until that is given")
    equal((one.end(), two.end()), ("closed 0", "closed 0"), "both end")


def check_stopped_client(broker):
    one, two, three = Client(broker), Client(broker), Client(broker)
    one.do("alloc 500")
    one.do("free 0")
    two.do("alloc 400")
    two.do("free 0")
    one.kill(signal.SIGSTOP)
    equal(three.do("alloc 450"), "0", "one that stands still is passed over for the next")
    ok(broker.books()["stalls"] >= 1, "which is counted", broker.books())
    three.start("alloc 400")
    broker.waiting()
    one.kill(signal.SIGCONT)
    equal(three.answer(), "1", "and gives when it goes on")
    for client in (one, two, three):
        client.end()
    equal(broker.books()["held"], 0, "nothing is lost")


def check_stopped_broker(broker):
    one = Client(broker, "share.wait=20ms")
    one.do("alloc 100")
    broker.tell(signal.SIGSTOP)
    equal(one.do("alloc 200"), "1", "a broker that stands still holds nobody up for ever")
    equal(one.lease()["state"], ALONE, "the client is alone")
    broker.tell(signal.SIGCONT)
    ok(until(lambda: one.lease()["state"] == HERE), "until it goes on")
    ok(until(lambda: broker.books()["held"] // 2**20 == one.lease()["leased"]),
       "and they agree on what is held", broker.books(), one.lease())
    one.end()
    equal(broker.books()["held"], 0, "nothing is counted twice")


def check_close(broker):
    one = Client(broker, "share.wait=20ms", "share.helper=no")
    one.do("alloc 100")
    broker.tell(signal.SIGSTOP)
    one.do("alloc 200")
    broker.tell(signal.SIGCONT)
    ok(until(lambda: [client["hears"] for client in broker.books()["clients"]] == ["gone"]),
       "a client has lost a broker that stood still")
    equal(one.do("close"), "closed 0", "and closes its context")
    ok(until(lambda: not broker.books()["held"]), "of which nothing is held, while the process goes on", broker.books())
    one.end()


def check_nonsense(broker):
    one = Client(broker)
    one.do("alloc 100")
    held = broker.books()["held"]
    words = [b"", b"x", frame(HELLO), frame(HELLO, b"\1" * 64), frame(HELLO, bytes(5176)),
             frame(WANT, bytes(32)), frame(GIVE, b"\xff" * 24), frame(0x1ff), frame(TEXT),
             frame(LIST, version=9), frame(LIST, b"", fds=3), bytes(range(256)) * 31]
    for word in words:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            other.settimeout(200)
            other.connect(broker.path)
            try:
                other.send(word)
                other.recv(10000)
                other.recv(10000)
            except (BrokenPipeError, ConnectionResetError):
                pass
    equal(broker.books()["held"], held, f"{len(words)} kinds of nonsense change nothing")
    ok(broker.run.poll() is None, "the broker lives")
    equal(one.do("alloc 100"), "1", "and serves")
    one.end()


class Speaker:
    """A client that this test speaks for; `answer`: the kind of the one to its HELLO, None for none."""

    def __init__(self, broker, number, held=0, memory=1 << 30, name=b"speaker", patient=True,
                 gpus=(b"GPU-other",), version=3):
        self.conn = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.conn.settimeout(200)
        self.conn.connect(broker.path)
        self.bell, bell = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with bell, contextlib.nullcontext() if patient else contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.answer = None
            self.say(HELLO, struct.pack("=IIQII32s", version, len(gpus), number, 0, 0, name) +
                     b"".join(struct.pack("=48sQQQQ", gpu, memory, held, 0, 0) for gpu in gpus) +
                     bytes(80 * (64 - len(gpus))), bell)
            self.answer = self.hear()

    def say(self, kind, body, *sockets):
        socket.send_fds(self.conn, [frame(kind, body, len(sockets))], [other.fileno() for other in sockets])

    def hear(self):
        said = self.conn.recv(10000)
        return struct.unpack_from("=I", said, 8)[0] if said else None

    def leave(self):
        """With all that it held."""
        if self.answer == WELCOME:
            self.say(BYE, b"")
        self.close()

    def close(self):
        self.conn.close()
        self.bell.close()


def check_sums(broker):
    one, two = Speaker(broker, 1, 10), Speaker(broker, 2, 2**64 - 10, 2**64 - 1)
    equal((one.answer, two.answer), (WELCOME, None), "one that holds more than any GPU has is no client")
    three = Speaker(broker, 3, name=b"\x1b[2J\xff")
    ok("?[2J?" in [client["name"] for client in broker.books(-1)["clients"]], "a name is nothing but letters")
    four = Speaker(broker, 4, version=2)
    equal(four.answer, REFUSED, "nor is one that takes what it is asked for another way")
    five, six = (Speaker(broker, 5 + more, memory=2**46 + more) for more in (0, 1))
    equal((five.answer, six.answer), (WELCOME, None), "a GPU of 64 TiB is one, and a larger one is none")
    for client in (one, two, three, four, five, six):
        client.close()


def number_of(kind):
    """What a page of a client's kind is told apart by (share/alike.h)."""
    mask, sums = (1 << 32) - 1, [0] * 4
    factor = (ord(kind) + 1) * 0x9e3779b97f4a7c15
    for thread in range(128):
        chains = [1, 2, 3, 4]
        for at in range(thread * 2, 1 << 18, 256):
            for i in range(4):
                word = factor * ((at + i // 2) * 8 + 8) >> 32 * (i % 2) & mask
                chain = chains[i] ^ word
                chains[i] = ((chain << 13 | chain >> 19) * 0x9e3779b1 + 0x85ebca77) & mask
        for i, chain in enumerate(chains):
            chain = (chain + (thread * 4 + i) * 0xc2b2ae3d) & mask
            chain = (chain ^ chain >> 15) * 0x85ebca77 & mask
            chain = (chain ^ chain >> 13) * 0xc2b2ae3d & mask
            sums[i] = sums[i] + (chain ^ chain >> 16) & mask
    return struct.pack("=4I", *sums)


def pages(numbers=(), ids=(), gpu=0, count=None, size=2 * MIB):
    """What is sought, offered or left."""
    return struct.pack("=IIQ", gpu, count or max(len(numbers), len(ids)), size) + \
        b"".join(numbers) + bytes(16 * (32 - len(numbers))) + struct.pack("=32I", *ids, *[0] * (32 - len(ids)))


def check_pages(broker):
    """What is said of pages is checked: by the broker, and by who takes them for equal."""
    name = broker.books()["gpu"].encode()
    number = number_of("a")
    held, other = socket.socketpair()
    with held, other:
        for nonsense in ((SEEK, pages([number], count=33)), (SEEK, pages([number], gpu=1)), (SEEK, pages([number], size=0)),
                         (SEEK, pages([number], size=1 << 50)), (SEEK, pages([number])[:-1]), (SEEK, pages([number]), held),
                         (OFFER, pages([number])), (OFFER, pages([number]), held, other), (LEAVE, pages(ids=[1])),
                         (LEAVE, pages(ids=[1 << 31])), (GETS, struct.pack("=II", 0, 33) + bytes(6400)),
                         (GETS, struct.pack("=II", 1, 1) + bytes(6400)), (GETS, struct.pack("=II", 0, 1) + bytes(6399))):
            one = Speaker(broker, 31, gpus=(name,))
            one.say(*nonsense)
            equal(one.hear(), None, "who talks nonsense of pages is left")
            one.close()
        one, two = Speaker(broker, 32, gpus=(name,)), Client(broker)
        one.say(OFFER, pages([number, number_of("b")]), held, other)
        equal(one.hear(), TAKEN, "one offers what is no memory")
        equal(broker.books()["common"], 4 * MIB, "which the broker cannot know")
        n = two.do("pages abc")
        equal(two.do("seal " + n), "0 0 0 0", "who takes it has nothing of it")
        equal(two.do(f"has {n} abc"), "right", "and every word of its own")
        equal(broker.books()["common"], 6 * MIB, "the third page is offered")
        equal(broker.books()["saved"], 0, "and none of the others is had")
        two.end()
        one.leave()
    ok(until(lambda: not broker.books()["common"]), "all is gone", broker.books())


def check_again(broker):
    one, two = Speaker(broker, 1), Speaker(broker, 2)
    one.say(WANT, struct.pack("=IIQQq", 0, 0, 900 * MIB, 900 * MIB, 0))
    equal(one.hear(), GRANTED, "a client has most of a GPU")
    line, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with line, other:
        two.say(WANT, struct.pack("=IIQQq", 0, 0, 300 * MIB, 300 * MIB, 10**12), other)
        until(lambda: broker.books(-1)["waiting"] == 1)
        one.close()
        one = Speaker(broker, 1, 900 * MIB)
        equal(one.answer, WELCOME, "and comes again with it")
        line.setblocking(False)
        try:
            said = line.recv(10000)
        except BlockingIOError:
            said = None
        equal((said, broker.books(-1)["held"]), (None, 900 * MIB), "which was nobody else's in between")
    one.close()
    two.close()


def check_turned_away():
    """No descriptor is left: nobody is left without an answer."""
    with Broker() as broker:
        was = resource.prlimit(broker.run.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(broker.run.pid, resource.RLIMIT_NOFILE, (broker.descriptors() + 6, was[1]))
        crowd = [Speaker(broker, 1)]
        while crowd[-1].answer == WELCOME:
            crowd.append(Speaker(broker, len(crowd) + 1, patient=False))
        equal(crowd.pop().answer, None, "who finds no descriptor left is told by the end of the connection")
        for one in crowd:
            one.close()
        ok(until(lambda: answer_of(broker, 99) == WELCOME), "when some are free again there is room")
        resource.prlimit(broker.run.pid, resource.RLIMIT_NOFILE, was)
        has(broker.end()[0], "no descriptor is left", "which the log has")


def answer_of(broker, number):
    one = Speaker(broker, number, patient=False)
    one.close()
    return one.answer


def check_bounds(broker):
    one, two = Speaker(broker, 1), Speaker(broker, 2)
    one.say(WANT, struct.pack("=IIQQq", 0, 0, 900 * MIB, 900 * MIB, 0))
    one.hear()
    key = struct.pack("=IIQQQQ16x192s", 0, 0, 1, MIB, 0, MIB, b"weights")
    one.say(PUT, key, one.bell)
    equal(one.hear(), REFUSED, "contents that nobody has leave for are not published")
    line, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with line, other:
        for _ in range(WAITS):
            two.say(WANT, struct.pack("=IIQQq", 0, 0, 300 * MIB, 300 * MIB, 10**12), two.bell)
        two.say(WANT, struct.pack("=IIQQq", 0, 0, 300 * MIB, 300 * MIB, 10**12), other)
        line.settimeout(200)
        equal(struct.unpack_from("=I", line.recv(10000), 8)[0], REFUSED, f"more than {WAITS} times nobody waits at once")
        equal(broker.books(-1)["waiting"], WAITS, "those who came before do")
    two.close()
    two = Speaker(broker, 2)
    two.say(WANT, struct.pack("=IIQQq", 0, 0, 300 * MIB, 300 * MIB, 3601 * 10**9), two.bell)
    equal(two.hear(), None, "nor for more than an hour")
    one.close()
    two.close()


def check_crowd(broker):
    """Of another user."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 8 * CLIENTS:
        skip("a crowd of another user", "too few descriptors")
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * CLIENTS, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    os.seteuid(65533)
    crowd = [Speaker(broker, i + 1) for i in range(CLIENTS)]
    more = answer_of(broker, CLIENTS + 1)
    os.seteuid(0)
    equal(({one.answer for one in crowd}, more), ({WELCOME}, None), f"a user has {CLIENTS} clients and no more")
    equal(answer_of(broker, CLIENTS + 2), WELCOME, "and leaves room for others")
    for one in crowd:
        one.close()


def check_names(broker):
    """GPUs that another user invents."""
    def invented(first, count):
        return [b"GPU-%d" % i for i in range(first, first + count)]

    os.seteuid(65531)
    many = Speaker(broker, 1, gpus=invented(0, 64))
    some = [Speaker(broker, 2 + i, gpus=invented(8 * i, 8)) for i in range(2)]
    more = Speaker(broker, 4, gpus=invented(16, 1))
    same = Speaker(broker, 5, gpus=invented(0, 16))
    os.seteuid(0)
    equal((many.answer, more.answer), (REFUSED, REFUSED), "another user names 16 GPUs and no more")
    equal([one.answer for one in (*some, same)], [WELCOME] * 3, "which may be named again")
    for one in (many, more, same, *some):
        one.leave()
    answers = set()
    for turn in range(8):
        os.seteuid(65531)
        one = Speaker(broker, 10 + turn, name=b"inventor", gpus=invented(100 + 16 * turn, 16))
        os.seteuid(0)
        answers.add(one.answer)
        one.leave()
        until(lambda: not [client for gpu in json.loads(broker.tool("--json").stdout)["gpus"] for client in gpu["clients"]
                           if client["name"] == "inventor"])
    equal(answers, {WELCOME}, "names that nobody uses are forgotten for others")
    own = Speaker(broker, 30, gpus=invented(1000, 40))
    equal(own.answer, WELCOME, "and the broker's own user has as many as there is room for")
    own.leave()


def check_line(broker):
    """Of another user than that crowd."""
    holder = Speaker(broker, 1)
    holder.say(WANT, struct.pack("=IIQQq", 0, 0, 900 * MIB, 900 * MIB, 0))
    equal(holder.hear(), GRANTED, "one has nearly all")
    ask = struct.pack("=IIQQq", 0, 0, 300 * MIB, 300 * MIB, 10**12)
    os.seteuid(65532)
    crowd = [Speaker(broker, i + 2) for i in range(WAITS_OF_USER // WAITS + 1)]
    os.seteuid(0)
    for one in crowd[:-1]:
        for _ in range(WAITS):
            one.say(WANT, ask, one.bell)
    ok(until(lambda: broker.books(-1)["waiting"] == WAITS_OF_USER), f"a user waits {WAITS_OF_USER} times at once")
    line, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with line, other:
        line.settimeout(200)
        crowd[-1].say(WANT, ask, other)
        equal(struct.unpack_from("=I", line.recv(10000), 8)[0], REFUSED, "and no more")
    last = Speaker(broker, 99)
    last.say(WANT, ask, last.bell)
    ok(until(lambda: broker.books(-1)["waiting"] == WAITS_OF_USER + 1), "which leaves room in line for others")
    for one in (holder, last, *crowd):
        one.close()


class Impostor:
    """What is no broker: a function of the test answers at each of its connections."""

    def __init__(self, answer):
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("GLAKE_")}
        self.folder = tempfile.TemporaryDirectory(prefix="glake-broker-")
        self.path = os.path.join(self.folder.name, "b.sock")
        self.answer = answer
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.server.bind(self.path)
        self.server.listen(8)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                with self.server.accept()[0] as conn:
                    self.answer(conn)
            except OSError:
                return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown(socket.SHUT_RDWR)
        self.folder.cleanup()


def answer_other(conn):
    conn.recv(10000)
    conn.send(frame(TEXT, bytes(8), version=7))


def answer_nothing(conn):
    """Grants, but no bytes."""
    said, fds, *_ = socket.recv_fds(conn, 10000, 1)
    with socket.socket(fileno=fds[0]):
        conn.send(frame(WELCOME, struct.pack("=II", 3, *struct.unpack_from("=I", said, 20)) + bytes(24 * 64)))
        while conn.recv(10000):
            conn.send(frame(GRANTED, bytes(24)))


def check_version():
    settings = "share.wait=20ms", "share.require=yes"
    with Impostor(answer_other) as other:
        one = Client(other, *settings)
        has(one.do("alloc 10"), "another version", "one of another version is none, and told so")
        one.end()
    with Impostor(answer_nothing) as other:
        one = Client(other, *settings)
        equal(one.lease()["state"], HERE, "one that welcomes is there")
        has(one.do("alloc 10"), "is away", "but not if it grants less than was wanted")
        one.end()


def check_users():
    if os.geteuid():
        skip("another user", "only root can be another user")
        return
    settings = "share.wait=20ms", "share.require=yes"
    with tempfile.TemporaryDirectory(prefix="glake-broker-") as folder:
        os.chmod(folder, 0o755)
        path = os.path.join(folder, "b.sock")
        # others may not look into where this was built
        keys = {"program": shutil.copy(PROGRAM, folder), "LD_LIBRARY_PATH": folder}
        shutil.copy(os.path.join(os.path.dirname(PROGRAM), "../../lib/libglake.so.0"), folder)
        with Broker(path=path) as broker:
            other = Client(broker, *settings, user=65533, **keys)
            has(other.do("alloc 10"), "is away", "another user cannot reach the broker of this one")
            os.chmod(path, 0o666)
            has(other.do("alloc 10"), "is away", "nor where its socket is open to it")
            other.end()
            broker.end()
        with Broker("--all-users", path=path) as broker:
            other = Client(broker, "share.require=yes", user=65533, **keys)
            equal(other.do("alloc 10"), "0", "with --all-users it is served")
            nobody = Client(broker, *settings, user=65534, **keys)
            has(nobody.do("alloc 10"), "is away",
                "but not the user that stands for all that a namespace does not know")
            other.end()
            nobody.end()
            check_crowd(broker)
            check_line(broker)
            check_names(broker)


def check_killed_in_line(broker):
    one = Client(broker)
    one.do("alloc 800")
    descriptors = broker.descriptors()
    for _ in range(3):
        two = Client(broker)
        two.start("alloc 600")
        broker.waiting()
        two.kill()
        two.run.wait()
        broker.waiting(0)
    ok(until(lambda: broker.descriptors() <= descriptors),
       "of those that are killed while they wait the broker keeps nothing open",
       descriptors, broker.descriptors())
    one.end()


def check_room(broker):
    settings = "share.broker=user", "share.wait=20ms", "share.require=yes"
    one = Client(broker, *settings)
    equal(one.do("alloc 10"), "0", "the broker of the user is found")
    one.end()
    os.chmod(broker.parent, 0o777)
    one = Client(broker, *settings)
    has(one.do("alloc 10"), "is away", "but not where others could have put it")
    one.end()
    os.chmod(broker.parent, 0o700)


def check_closed(broker):
    one, two = Client(broker), Client(broker)
    one.do("alloc 500")
    one.do("free 0")
    equal(one.do("lose"), "0", "a program closes all sockets, and has others of their numbers")
    equal(two.do("alloc 800"), "0", "the library has new ones, and hears as before")
    equal(one.do("kept"), "1", "and leaves the program's alone")
    one.end()
    two.end()


def check_second(broker):
    second = subprocess.run([DAEMON], env=broker.env, check=False, capture_output=True, text=True)
    equal(second.returncode, 1, "a second broker ends at once")
    has(second.stderr, "a broker is there already", "and says why")


def check_places():
    """Sockets that are others', or have come to be."""
    with tempfile.TemporaryDirectory(prefix="glake-broker-") as folder:
        path = os.path.join(folder, "b.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as busy, \
             socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as first:
            busy.bind(path)
            busy.listen(0)
            first.connect(path)
            was = os.stat(path).st_ino
            run = subprocess.Popen([DAEMON, "--socket", path], stderr=subprocess.PIPE, text=True)
            ok(until(lambda: run.poll() is not None or os.stat(path).st_ino != was),
               "a broker comes where one is too busy to answer")
            equal((run.poll(), os.stat(path).st_ino), (1, was), "and does not take its place")
            run.kill()
            run.communicate()
        os.unlink(path)
        with Broker(path=path) as one:
            os.unlink(path)
            with Broker(path=path):
                one.end()
                ok(os.path.exists(path), "one that has lost its socket leaves that of another")


def main():
    start()
    with Broker() as broker:
        check_second(broker)
        check_restart(broker)
        check_away(broker)
        check_killed_in_line(broker)
        check_room(broker)
        check_closed(broker)
        check_stopped_client(broker)
        check_stopped_broker(broker)
        check_close(broker)
        check_nonsense(broker)
        check_sums(broker)
        check_pages(broker)
        check_again(broker)
        check_bounds(broker)
    check_turned_away()
    check_places()
    check_version()
    check_users()
    done()


main()
