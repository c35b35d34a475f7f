# SPDX-License-Identifier: LGPL-2.1-or-later
"""
A trace of eight threads that serve requests, each on a stream of its own, and of a ninth that has
their results. A request is of 16 to 2048 tokens, and what its layers make is of so many bytes a token:
each block goes when the next but one is there. The threads take their steps in any order. A result
is freed by the ninth thread, on its own stream, some steps after it was made.
"""
import random

THREADS = 8
REQUESTS = 800
KIB = 1024
LAYERS = 3
WIDTHS = [8 * KIB, 24 * KIB, 8 * KIB, 8 * KIB, 22 * KIB, 22 * KIB, 8 * KIB]
RESULT = 16 * KIB
# steps of all threads, until a result is freed
LEAST, MOST = 10, 200


class Thread:
    def __init__(self, number):
        self.number, self.left, self.live = number, [], []


def rows():
    """Thread, time, action, pointer, size and stream of each event."""
    pick = random.Random(1)
    threads = [Thread(number) for number in range(THREADS)]
    begun, now, made, results = 0, 0, 0, []
    while begun < REQUESTS or any(t.left for t in threads):
        thread = pick.choice(threads)
        if not thread.left:
            if begun == REQUESTS:
                continue
            begun += 1
            tokens = pick.randrange(16, 2049)
            thread.left = [width * tokens for width in WIDTHS * LAYERS + [RESULT]]
        now += 1
        made += 1
        block = made << 12, thread.left.pop(0)
        yield thread.number, now, "allocate", *block, thread.number
        thread.live.append(block)
        gone = thread.live[:-2]
        if not thread.left:
            gone = thread.live[:-1]
            results.append((now + pick.randrange(LEAST, MOST), block))
        for other in gone:
            yield thread.number, now, "free", *other, thread.number
        thread.live = thread.live[len(gone):] if thread.left else []
        while results and results[0][0] <= now:
            yield THREADS, now, "free", *results.pop(0)[1], THREADS
    for _, block in results:
        yield THREADS, now, "free", *block, THREADS


def write(path):
    with open(path, "w", encoding="ascii") as trace:
        print("Thread,Time,Action,Pointer,Size,Stream", file=trace)
        for thread, time, action, pointer, size, stream in rows():
            print(f"{thread},{time},{action},{pointer:#x},{size},{stream}", file=trace)
