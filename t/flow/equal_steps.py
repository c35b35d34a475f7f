#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Made-up jobs whose steps are exactly equal: after how many of them the driver is called no more.

Each job is looked at twice: as one step that is replayed again and again, which gives back and
asks again for what a job keeps from step to step too, and as a job of many steps that keeps it.
What a step calls there is what a job calls that is longer by this step, since the same requests
lead to the same calls.

    GLAKE_TEST_SEEDS="2 3 4" t/prove -v -s flow build flow/equal_steps

tells what jobs from other seeds do, of which nothing is claimed.
"""
import itertools
import json
import os
import random
import tempfile

from tap import done, equal, note, ok, start, tool

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LARGEST = 300 * MIB
WORDS = 32000  # of the vocabulary
CALLS = ["create", "map", "set_access", "unmap", "release"]
SEED = 1
PASSES = 8
GOAL = 4  # equal steps, after which there is no call
# For each target the most that is held over what is live, and the last pass and the last step with a
# call, of the jobs that do not reach the goal today.
NEVER = None
TARGETS = {
    "auto": (1.10, {}),
    "1.005": (1.03, {"unet": (7, 13), "random": (NEVER, NEVER)}),
}
# What a later pass of those that never settle calls at most, of the calls of the first one.
SHARE = 0.25


class Trace:
    """Rows of an RMM log; a block is known by its number, which no other block has."""

    def __init__(self):
        self.rows, self.sizes, self.ends = [], [], []

    def take(self, size):
        self.sizes.append(size)
        block = len(self.sizes)
        self.rows.append(f"0,{len(self.rows)},allocate,{block:#x},{size},0")
        return block

    def give(self, *blocks):
        for block in blocks:
            self.rows.append(f"0,{len(self.rows)},free,{block:#x},{self.sizes[block - 1]},0")

    def ended(self):
        """A step, or what comes before all of them."""
        self.ends.append(len(self.rows))

    def write(self, path, steps):
        with open(path, "w", encoding="ascii") as file:
            file.write("Thread,Time,Action,Pointer,Size,Stream\n")
            file.write("\n".join(self.rows[:self.ends[steps]]) + "\n")


def draw(dice, low, high):
    """A whole number from low to high; of random.Random only random() is the same everywhere."""
    return low + int(dice.random() * (high - low + 1))


def adamw(trace, weights, gradients):
    """A step over lists of weights: a temporary for each, some dozens at a time."""
    for first in range(0, len(weights), 48):
        part = [trace.take(size) for size in weights[first:first + 48]]
        trace.give(*part)
    trace.give(*gradients)


class Transformer:
    """All weights tuned by AdamW: activations go in reverse, weights and moments stay."""

    def __init__(self, dice):
        self.hidden = 128 * draw(dice, 16, 20)
        self.layers = draw(dice, 24, 32)
        self.tokens = draw(dice, 7000, 10000)
        hidden, inner = self.hidden, 4 * self.hidden
        layer = [hidden * hidden, hidden] * 4 + [hidden] * 4 + [
            hidden * inner, inner, inner * hidden, hidden]
        self.weights = [2 * n for n in [WORDS * hidden] + layer * self.layers + [hidden] * 2]

    def keep(self, trace):
        for size in self.weights + [size for size in self.weights for _ in range(2)]:
            trace.take(size)

    def layer(self, trace, x):
        """Forward: what is saved for the way back, and the output."""
        row, token = 2 * self.tokens * self.hidden, 4 * self.tokens
        saved = [x, trace.take(token), trace.take(token), trace.take(row)]
        saved += [trace.take(row) for _ in range(4)]  # queries, keys, values, attention
        saved += [trace.take(32 * token), trace.take(KIB)]  # a sum a head, the state of dropout
        projected = trace.take(row)
        saved.append(trace.take(row))
        trace.give(projected)
        saved += [trace.take(token), trace.take(token), trace.take(row)]
        saved += [trace.take(4 * row), trace.take(4 * row)]
        down = trace.take(row)
        out = trace.take(row)
        trace.give(down)
        return saved, out

    def back(self, trace, saved, weights, slope):
        """Backward: the gradients of the weights, and the slope that goes on."""
        row, gradients = 2 * self.tokens * self.hidden, []
        for number, block in enumerate(reversed(saved)):
            part = trace.take(4 * row if number < 2 else row)
            if weights:
                gradients.append(trace.take(weights.pop()))
            if number % 3 == 2:
                trace.give(slope)
                slope = trace.take(row)
            trace.give(part, block)
        return gradients, slope

    def step(self, trace):
        row, scores = 2 * self.tokens * self.hidden, min(2 * self.tokens * WORDS, LARGEST)
        ids, saved, x = trace.take(8 * self.tokens), [], trace.take(row)
        for _ in range(self.layers):
            blocks, x = self.layer(trace, x)
            saved.append(blocks)
        words, normal, loss = trace.take(scores), trace.take(scores), trace.take(4)
        trace.give(normal)
        slope = trace.take(scores)
        trace.give(words)
        gradients, slope_x = [trace.take(self.weights[0])], trace.take(row)
        trace.give(slope, loss, x)
        for number in reversed(range(self.layers)):
            weights = self.weights[1 + 16 * number:17 + 16 * number]
            more, slope_x = self.back(trace, saved.pop(), weights, slope_x)
            gradients += more
        gradients += [trace.take(size) for size in self.weights[-2:]]
        trace.give(slope_x, ids)
        adamw(trace, self.weights, gradients)


class UNet:
    """Levels of half the height and width and twice the channels, joined across by skips."""

    def __init__(self, dice):
        self.batch = draw(dice, 40, 56)
        self.side = 16 * draw(dice, 13, 16)
        self.channels = 16 * draw(dice, 3, 4)
        blocks = draw(dice, 5, 7)
        down = [level for level in range(5) for _ in range(blocks)]
        self.places = down + down[::-1]

    def channels_at(self, level):
        return self.channels << min(level, 3)

    def image(self, level):
        pixels = (self.side >> level) ** 2
        return min(2 * self.batch * self.channels_at(level) * pixels, LARGEST)

    def convolution(self, level):
        return 2 * 9 * self.channels_at(level) ** 2

    def turns(self, number):
        """Whether the block is the last of its level on the way down."""
        return number < len(self.places) // 2 and self.places[number] != self.places[number + 1]

    def keep(self, trace):
        for level in self.places:
            for _ in range(2 * 3):  # two weights, and two moments of each
                trace.take(self.convolution(level))
                trace.take(2 * self.channels_at(level))

    def block(self, trace, level, x, joined):
        """Forward: what is saved for the way back, and the output."""
        image, saved = self.image(level), [x]
        if joined:  # made larger, and beside the skip
            saved += [trace.take(image), trace.take(min(2 * image, LARGEST))]
        for _ in range(2):
            space = trace.take(min(2 * image + MIB, LARGEST))
            saved.append(trace.take(image))
            trace.give(space)
            saved += [trace.take(4 * self.channels_at(level)) for _ in range(2)]
            normed = trace.take(image)
            saved.append(trace.take(image))
            trace.give(normed)
        return saved, trace.take(image)

    def step(self, trace):
        saved, skips, gradients = [], [], []
        x = trace.take(2 * self.batch * 3 * self.side ** 2)
        for number, level in enumerate(self.places):
            joined = number > len(self.places) // 2 and level != self.places[number - 1]
            blocks, x = self.block(trace, level, x, joined)
            saved.append(blocks)
            if self.turns(number):
                skips.append(trace.take(self.image(level)))
        slope = trace.take(self.image(0))
        trace.give(x)
        for number in reversed(range(len(self.places))):
            level = self.places[number]
            image = self.image(level)
            for _ in range(2):
                space = trace.take(min(3 * image // 2 + MIB, LARGEST))
                gradients += [trace.take(self.convolution(level)),
                              trace.take(2 * self.channels_at(level))]
                before, slope = slope, trace.take(image)
                trace.give(space, before)
            trace.give(*reversed(saved.pop()))
            if self.turns(number):
                trace.give(skips.pop())
        trace.give(slope)
        adamw(trace, [self.convolution(level) for level in self.places], gradients)


class Random:
    """Any size for any time, the same in each step; some blocks stay."""

    def __init__(self, dice):
        blocks = draw(dice, 2000, 2800)
        self.events = []
        for block in range(blocks):
            size, begins = self.size(dice), dice.random()
            self.events += [(begins, block, size), (begins + dice.random(), block, 0)]
        self.events.sort()
        self.kept = [self.size(dice) for _ in range(blocks // 10)]

    @staticmethod
    def size(dice):
        """From 1 KiB to 300 MiB; there are as many between 1 and 2 MiB as between 100 and 200."""
        return int(KIB * (LARGEST // KIB) ** dice.random())

    def keep(self, trace):
        for size in self.kept:
            trace.take(size)

    def step(self, trace):
        held = {}
        for _, block, size in self.events:
            if size:
                held[block] = trace.take(size)
            else:
                trace.give(held.pop(block))


JOBS = {"transformer": Transformer, "unet": UNet, "random": Random}


def made(name, seed, steps):
    job, trace = JOBS[name](random.Random(seed)), Trace()
    job.keep(trace)
    trace.ended()
    for _ in range(steps):
        job.step(trace)
        trace.ended()
    return trace


def replay(trace, steps, passes, target):
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        trace.write(file.name, steps)
        run = tool("replay", "--repeat", passes, "--json", "-q", "-d", "soft",
                   "--conf", f"policy.target={target}", file.name)
    if run.returncode:
        note(run.stderr.decode())
        return None
    return json.loads(run.stdout)


def calls(repeat):
    return sum(repeat["driver_calls"][kind] for kind in CALLS)


def by_pass(name, seed, target, passes, _=NEVER):
    """Calls of each pass over one step, and what is held over what is live."""
    result = replay(made(name, seed, 1), 1, passes, target)
    if not result:
        return [], 0
    equal([repeat["oom"] for repeat in result["repeats"]], [0] * passes,
          f"{name}: no request out of memory")
    note(f"{name}, seed {seed}: {result['events']} events, "
         f"{result['peak_live_bytes'] / GIB:.1f} GiB live")
    return [calls(repeat) for repeat in result["repeats"]], result["reserved_over_live"]


def by_step(name, seed, target, steps, settled=NEVER):
    """The same of each step of one job; the first one's with those for what the job keeps. Where it is
    to settle fewer are looked at, and each has the calls of those before it."""
    trace, counts, before = made(name, seed, steps), [0] * steps, 0
    for count in range(1, steps + 1) if settled is NEVER else sorted({1, GOAL, settled, steps}):
        result = replay(trace, count, 1, target)
        if not result:
            return [], 0
        sum_ = calls(result["repeats"][0])
        counts[count - 1], before = sum_ - before, sum_
    return counts, result["reserved_over_live"]


def last(counts):
    """The last pass or step with a call."""
    return max((number for number, count in enumerate(counts, 1) if count), default=0)


def tell(name, target, what, counts, held):
    note(f"{name}, target {target}, each {what}: calls {' '.join(map(str, counts))}; the last in "
         f"{what} {last(counts)}; reserved over live {held:.4f}")


def check(name, target, look, what, today):
    counts, held = look(name, SEED, target, max(PASSES, (today or 0) + PASSES - GOAL), today)
    if not ok(counts, f"{name}: replays"):
        return
    tell(name, target, what, counts, held)
    most = TARGETS[target][0]
    ok(held <= most, f"{name}, target {target}: reserved over live at most {most}", held)
    # where nothing were asked of the driver, all of this would hold as well
    ok(counts[0] > 1000, f"{name}: the first {what} makes memory", counts)
    if today is NEVER:
        ok(max(counts[GOAL:]) <= SHARE * counts[0],
           f"{name}: after {what} {GOAL} at most {SHARE:.0%} of the calls of the first", counts)
    else:
        ok(last(counts) <= today, f"{name}: no driver call after {what} {today}", counts)
    if today != GOAL and last(counts) <= GOAL:
        note(f"{name}, target {target}, each {what}: reaches the goal, its entry in TARGETS can go")


def main():
    start()
    seeds = [int(text) for text in os.environ.get("GLAKE_TEST_SEEDS", "").split()]
    for name, (target, (_, today)) in itertools.product(JOBS, TARGETS.items()):
        settled = today.get(name, (GOAL, GOAL))
        for look, what, last_call in zip((by_pass, by_step), ("pass", "step"), settled):
            check(name, target, look, what, last_call)
            for seed in seeds:
                tell(name, target, what, *look(name, seed, target, 2 * PASSES))
    done()


main()
