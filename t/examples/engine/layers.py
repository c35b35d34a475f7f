# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The engine under glake.planner: it says which prompt is computed when and which of its layers leave for the host as they
are done, and when they come back, before the first step. One prompt is computed at a time, and all others that have their
layers have a token more with each step, in a batch of one size, so that no token depends on who else is there.

A layer that leaves has its memory taken in stream order, so for the planner it has moved when the call returns. But for
those that leave as they are done, layers move on a stream and a thread of their own, beside the steps. Times are the
clock's on a GPU; elsewhere those that the planner reckons with, so that a run is the same each time.
"""

import collections
import functools
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch

import glake
from caches import PAGE, Full, GlakeLayer
from engine import Engine, Graph, Request, Sequence
from glake import planner

GUESSED = {"prompt": (1e6, 80e3, 1.5), "step": (9e6, 20e3, 300.0), "rate": 25.0}  # where nothing can be measured


class Layered(GlakeLayer):
    """Lanes of a sequence have memory layer by layer, and leave by themselves. What cannot be copied is tried again."""
    TRIES = 4

    def __init__(self, shape, budget, most, slots, device, dtype, way):
        super().__init__(shape, budget, most, slots, device, dtype, way, large=True)
        self.cache.limit(0)  # what is away counts for it, and not for the budget of the GPU
        # a sequence has up to a page a lane more than its tokens need
        self.limit = budget + (slots + 1) * 2 * shape.layers * PAGE
        glake.budget(self.limit)
        self.away, self.most_held, self.whole, self.failed = 0, 0, {}, 0

    def come(self, tokens, more):
        """A sequence of so many tokens, to which so many are to come."""
        slot = self.cache.new(self.most)
        self.tokens[slot], self.whole[slot] = tokens, tokens + more
        return slot

    def prefill(self, layer, q, k, v, parts):
        (slot, _, count), = parts
        # with memory for all that is to come a step needs no page, and waits for nobody who has some
        self.tried(self.cache.layer_grow, slot, 2 * layer, 2, count if self.away else self.whole[slot])
        self.most_held = max(self.most_held, glake.stats(0)["reserved"])
        out = super().prefill(layer, q, k, v, parts)
        if layer < self.away:
            self.leave(slot, layer, 1)
        elif layer == self.shape.layers - 1 and not self.away:
            self.cache.grow(slot, count)
        return out

    def moved(self, call, *arguments):
        for tries in range(self.TRIES):
            try:
                return call(*arguments)
            except self.glake.GlakeError:
                self.failed += 1
                if tries + 1 == self.TRIES:
                    raise

    def leave(self, slot, layer, layers, stream=None):
        def called():
            try:
                self.cache.layer_done(slot, 2 * layer, 2 * layers, stream)
            except self.glake.GlakeError:
                self.moved(self.cache.layer_wait, slot, 2 * layer, 2 * layers, stream)  # what of them went
                raise
        self.moved(called)

    def back(self, slot, layer, layers, stream=None):
        for number in range(layer, layer + layers):  # so that steps find the cache's memory free between two
            self.moved(self.cache.layer_wait, slot, 2 * number, 2, stream)

    def runs(self, slot):
        """All layers are back."""
        self.tried(self.cache.layer_grow, slot, 0, 2 * self.shape.layers, self.whole[slot])
        self.cache.grow(slot, self.tokens[slot])

    def step(self, lengths):
        slots = set(self.running)
        super().step([n if slot in slots else 0 for slot, n in enumerate(lengths)])

    def close(self):
        super().close()
        glake.budget((1 << 64) - 1)


class Reckoned:
    """Time as the planner reckons it."""

    def __init__(self, rate):
        self.time, self.rate, self.free = 0, rate, 0

    def now(self):
        return self.time

    def ran(self, work):
        self.time += max(work.takes, 1)

    def move(self, call, bytes):
        """Layers that come have the link, one after the other; `bytes` is 0 of those that leave."""
        call(None)
        self.free = max(self.free, self.time) + int(bytes / self.rate) if bytes else self.free
        return self.free if bytes else self.time

    def has(self, copy, waits=False):
        if waits:
            self.time = max(self.time, copy)
        return copy <= self.time

    def stop(self):
        pass


class Measured:
    """Time as it passes; layers move beside the steps."""

    def __init__(self):
        self.begin, self.stream, self.helper = time.monotonic_ns(), torch.cuda.Stream(), ThreadPoolExecutor(1)  # real time

    def now(self):
        return time.monotonic_ns() - self.begin  # real time

    def ran(self, _):
        event = torch.cuda.Event()
        event.record()
        event.synchronize()

    def move(self, call, _):
        def called():
            call(self.stream)
            event = torch.cuda.Event()
            event.record(self.stream)
            return event
        return self.helper.submit(called)

    def has(self, copy, waits=False):
        if waits:
            copy.result().synchronize()
        return copy.done() and copy.result().query()

    def stop(self):
        self.helper.shutdown()


@dataclass
class Life(Sequence):
    id: int = -1
    arrived: int = 0
    first: int = 0
    ended: int = 0


@dataclass
class Told:
    """What a run came to."""
    errors: list = field(default_factory=list)  # of what a prompt or a step took, by what it was reckoned to take
    spent: dict = field(default_factory=lambda: dict.fromkeys(("prompts", "steps", "waits"), 0))  # ns


class Planned(Engine):
    def __init__(self, model, cache, plan, rate):
        super().__init__(model, cache, watch=True)
        if self.graphs is not None:
            self.graphs[self.size_for(0)] = Graph(self, self.size_for(0))
        self.plan, self.there, self.over = plan, {}, []
        self.moving, self.log = collections.deque(), Told()
        self.clock = Measured() if model.device.type == "cuda" else Reckoned(rate)

    def size_for(self, _):
        """One for all, for the same reason as the rest: a product of matrices rounds as its size wants."""
        return -(-self.cache.slots // 16) * 16

    def come(self, request, first, token):
        now = self.clock.now()
        life = Life(request, 0, request.prompt, arrived=now)
        life.id = self.plan.submit(now, len(request.prompt), request.stop, first, token)
        self.there[life.id] = life

    def preempt(self):
        raise Full("the planner let more in than there is memory for")

    def take_moves(self):
        for move in self.plan.moves(self.clock.now()):
            slot = self.there[move.id].slot
            each = self.cache.tokens[slot] * self.cache.token // self.cache.shape.layers
            call = functools.partial(self.cache.back if move.back else self.cache.leave, slot, move.layer, move.layers)
            self.moving.append((move, self.clock.move(call, move.layers * each if move.back else 0)))

    def look(self, waits=False):
        """Which layers have moved."""
        while self.moving and self.clock.has(self.moving[0][1], waits):
            move, _ = self.moving.popleft()
            waits = False
            self.plan.moved(self.clock.now(), move.id, move.layer, move.layers)
            if self.plan.state(move.id)["stage"] == planner.RUNS:
                self.cache.runs(self.there[move.id].slot)

    def prompt(self, life, away, more=0):
        count = len(life.tokens)
        life.slot, self.cache.away = self.cache.come(count, more), away
        self.prefill([[life]], [(life.slot, 0, count)])

    def step(self, lives):
        if lives != self.running:
            self.running, self.changed = lives, True
        self.cache.running = [life.slot for life in lives]
        self.decode()

    def compute(self, work):
        began = self.clock.now()
        if work.what == planner.PROMPT:
            life = self.there[work.id]
            self.prompt(life, work.away, life.request.stop)
        else:
            self.step([self.there[id] for id in work.batch])
        self.clock.ran(work)
        now = self.clock.now()
        self.plan.done(now)
        self.log.errors.append(abs((now - began) / max(work.takes, 1) - 1))
        prompt = work.what == planner.PROMPT
        self.log.spent["prompts" if prompt else "steps"] += now - began
        if prompt:
            self.there[work.id].first = now
        if work.away:
            self.plan.moved(now, work.id, 0, work.away)
        self.end()

    def end(self):
        for life in [x for x in self.running if x.made >= x.request.stop]:
            life.ended = self.clock.now()
            self.plan.end(life.ended, life.id)
            self.over.append(self.there.pop(life.id))
        super().end()

    @torch.inference_mode()
    def run(self):
        while self.there:
            self.look()
            self.take_moves()
            work = self.plan.next(self.clock.now())
            self.take_moves()
            if work.what:
                self.compute(work)
            elif self.moving:
                began = self.clock.now()
                self.look(waits=True)
                self.log.spent["waits"] += self.clock.now() - began
            else:
                raise RuntimeError(f"the planner stands still with {len(self.there)} requests")
        self.clock.stop()


def burst(shape, bytes, token, prompts, outputs, seed=1):
    """Requests that come together, whose prompts want as much memory twice."""
    draw, requests, total = random.Random(seed), [], 0
    while total * token < 2 * bytes:
        words = random.Random(draw.randrange(1 << 30))
        count = draw.randint(*prompts)
        total += count
        requests.append(Request(len(requests), [words.randrange(shape.vocabulary) for _ in range(count)],
                                draw.randint(*outputs), 0.8 if len(requests) % 2 else 0.0, draw.randrange(1 << 30)))
    return requests


class Idle:
    """A planner for who only measures."""
    work = planner.Work(planner.IDLE, 0, 0, 0, 0, [], 1)

    def __getattr__(self, _):
        return lambda *_: None


@torch.inference_mode()
def measured(model, make, most):
    """ns of prompts and steps by their tokens, and bytes a ns that layers come back with."""
    cache = make()
    engine, layers = Planned(model, cache, Idle(), 0), model.shape.layers
    prompts, steps, rates = [], [], []

    def timed(call, *arguments):
        torch.cuda.synchronize()
        begin = engine.clock.now()
        call(*arguments)
        engine.clock.ran(None)
        return engine.clock.now() - begin

    def come(count):
        return Life(Request(0, [1] * count, 1), 0, [1] * count)

    def stepped(lives):
        engine.step(lives)
        return sum(cache.tokens), statistics.median(timed(engine.step, lives) for _ in range(8))

    for turn in range(2):  # kernels are loaded in the first, and the host's memory is locked
        for count in (most // 4, most // 2, most):
            life = come(count)
            took = timed(engine.prompt, life, 0)
            if turn:
                prompts.append((count, took))
            if turn and count == most:
                steps.append(stepped([life]))
            cache.free(life.slot)
        life = come(most)
        engine.prompt(life, layers)
        rates.append(most * cache.token / timed(cache.back, life.slot, 0, layers))
        cache.free(life.slot)
    lives = [come(cache.budget // cache.token // cache.slots - 64) for _ in range(cache.slots)]
    for life in lives:  # as long as all of them may be
        life.slot = cache.come(len(life.tokens), 0)
        cache.cache.grow(life.slot, len(life.tokens))
        engine.position[life.slot] = len(life.tokens)
    steps.append(stepped(lives))
    for life in lives:
        cache.free(life.slot)
    engine.running = []
    ended(engine)
    rows = torch.tensor([(1.0, n, n * n) for n, _ in prompts], dtype=torch.float64)
    prompt = torch.linalg.solve(rows, torch.tensor([float(took) for _, took in prompts], dtype=torch.float64))
    (few, short), (many, long) = steps
    each = max((long - short) / (many - few), 0.0)
    return {"prompt": tuple(max(x, 0.0) for x in prompt.tolist()), "step": (max(short - each * few, 0.0), 0.0, each),
            "rate": rates[1]}


def ended(engine):
    engine.clock.stop()
    engine.stop()
    engine.cache.close()


def planned(model, make, requests, costs, policy, objectives):
    """One policy: what each request said, and the figures."""
    cache, layers = make(), model.shape.layers
    with planner.Planner(layers=layers, layer_bytes=cache.token // layers, memory=cache.budget, out=costs["rate"],
                         back=costs["rate"], prompt=costs["prompt"], step=costs["step"], requests=len(requests),
                         batch=cache.slots, policy=policy) as plan:
        engine = Planned(model, cache, plan, costs["rate"])
        for request in requests:
            engine.come(request, *objectives)
        engine.run()
        figures = plan.figures()
    over, told = engine.over, engine.log
    first = [(life.first - life.arrived) / 1e9 for life in over]
    each = sorted((life.ended - life.first) / 1e9 / (life.request.stop - 1) for life in over)
    took = (max(life.ended for life in over) - min(life.arrived for life in over)) / 1e9
    row = {"requests": len(over), "first_mean_s": statistics.mean(first), "first_most_s": max(first),
           "token_mean_s": statistics.mean(each), "token_p99_s": each[-(-99 * len(each) // 100) - 1], "took_s": took,
           "tokens_s": sum(life.request.stop for life in over) / took, "prompts_away": figures["prompts_away"],
           "spent_s": {name: ns / 1e9 for name, ns in told.spent.items()}, "copies_failed": cache.failed,
           "layers_moved": figures["layers_back"], "layers_late": figures["layers_late"],
           "error_median": statistics.median(told.errors), "steps": engine.steps, "most_at_a_time": engine.most_running,
           "held_most": cache.most_held, "limit": cache.limit, "planner": figures}
    ended(engine)
    return {key: tokens for key, (tokens, _) in engine.answers.items()}, row


@torch.inference_mode()
def whole(model, make, count, away, room):
    """
    A prompt by itself, all of whose layers leave with memory for `room` of them, or none: its time, the most that was
    held, sums of what the layers hold, and some tokens behind it.
    """
    cache, layers = make(), model.shape.layers
    engine, took = Planned(model, cache, Idle(), 0), []
    draw = random.Random(4)
    life = Life(Request(0, [draw.randrange(model.shape.vocabulary) for _ in range(count)], 8), 0, [])
    life.tokens = life.request.prompt
    engine.there[life.id] = life
    if away:  # and what the row of nobody has
        glake.budget(cache.rest + room * 2 * -(-count * cache.token // (2 * layers * PAGE)) * PAGE)
    for _ in range(2):
        cache.most_held, begin = 0, time.monotonic()  # real time
        engine.prompt(life, layers if away else 0)
        engine.clock.ran(Idle.work)
        took.append(time.monotonic() - begin)  # real time
        held = cache.most_held - cache.rest
        if len(took) == 1:
            cache.free(life.slot)
            engine.running.clear()
    glake.budget(cache.limit)
    if away:
        cache.back(life.slot, 0, layers)
        cache.cache.grow(life.slot, count)
    sums = [int(lane.view(torch.int16).sum()) for number in range(layers) for lane in cache.read(number, life.slot, count)]
    for _ in range(7):
        engine.step([life])
    life.made = life.request.stop
    engine.end()
    ended(engine)
    return engine.answers[0, 0][0], {"took_s": took[1], "first_s": took[0], "held_most": held, "sums": sums}


class Layers:
    """The parts of --layers; `bench` says what came of them."""

    def __init__(self, bench):
        self.bench, self.wanted, self.device = bench, bench.wanted, bench.device
        self.dtype = getattr(torch, self.wanted.dtype)

    def make(self, shape, bytes, most, slots):
        way = self.bench.ways(shape, self.dtype, most)
        return lambda: Layered(shape, bytes, most, slots, self.device, self.dtype, way)

    def burst(self, shape, model, bytes):
        wanted, rows, answers = self.wanted, {}, {}
        token = 2 * shape.layers * shape.groups * shape.size * self.dtype.itemsize
        requests = burst(shape, bytes, token, wanted.prompts, wanted.outputs)
        make = self.make(shape, bytes, wanted.prompts[1] + wanted.outputs[1], len(requests))
        costs = measured(model, make, wanted.prompts[1]) if self.device.type == "cuda" else GUESSED
        total = sum(len(r.prompt) for r in requests)
        self.bench.say(f"a burst of {len(requests)} prompts, {total} tokens, memory for {bytes // token}; a prompt takes "
                       "{:.3g} ms, {:.3g} us a token, {:.3g} ns a token squared; a step {:.3g} ms, {:.3g} ns a token; "
                       "the link {:.1f} GB/s".format(
                           costs["prompt"][0] / 1e6, costs["prompt"][1] / 1e3, costs["prompt"][2], costs["step"][0] / 1e6,
                           costs["step"][2], costs["rate"]))
        for name, policy in (("first", planner.FIRST), ("layers", planner.LAYERS)):
            answers[name], rows[name] = planned(model, make, requests, costs, policy, (3e9, 200e6))
            row = rows[name]
            self.bench.say(
                f"  {name}: to the first token {row['first_mean_s']:.3f} s (mean), {row['first_most_s']:.3f} (most); by token "
                f"{1e3 * row['token_mean_s']:.1f} ms (mean), {1e3 * row['token_p99_s']:.1f} (p99); {row['tokens_s']:.1f} "
                f"tokens/s, {row['took_s']:.2f} s, of which "
                + ", ".join(f"{took:.2f} {what}" for what, took in row["spent_s"].items()) +
                f"; {row['prompts_away']} prompts with layers away, {row['layers_moved']} "
                f"layers came back, {row['layers_late']} late; reckoned wrong by {100 * row['error_median']:.1f} % "
                f"(median); {row['held_most'] >> 20} MiB held of {row['limit'] >> 20}")
        first, mine = rows["first"], rows["layers"]
        must = self.bench.must
        must(answers["first"] == answers["layers"] and len(answers["first"]) == len(requests), "  equal tokens")
        must(mine["first_mean_s"] <= 0.6 * first["first_mean_s"],
             f"  to the first token: {mine['first_mean_s'] / first['first_mean_s']:.3f} of first come, first served (0.6)")
        must(mine["token_p99_s"] <= 0.2, f"  by token within 200 ms: {1e3 * mine['token_p99_s']:.1f}")
        must(mine["tokens_s"] >= 0.97 * first["tokens_s"],
             f"  tokens a second: {mine['tokens_s'] / first['tokens_s']:.3f} of it (0.97)")
        must(mine["layers_late"] <= 0.01 * mine["layers_moved"],
             f"  late: {mine['layers_late']} of {mine['layers_moved']} layers (1 %)")
        must(mine["error_median"] <= 0.1, f"  reckoned wrong by {100 * mine['error_median']:.1f} % (10)")
        must(mine["prompts_away"] and mine["held_most"] <= mine["limit"], "  layers left, and the memory sufficed")
        self.bench.results["burst"] = {"costs": costs, "rows": rows, "tokens": answers["layers"] == answers["first"]}

    def prompt(self, shape, model, count):
        token = 2 * shape.layers * shape.groups * shape.size * self.dtype.itemsize
        make = self.make(shape, count * token, count + 16, 1)
        said, row = whole(model, make, count, False, 0)
        again, mine = whole(model, make, count, True, self.wanted.room)
        must = self.bench.must
        self.bench.say(f"a prompt of {count} tokens, {count * token >> 20} MiB: {row['took_s']:.3f} s and "
                       f"{row['held_most'] >> 20} MiB with all of it, {mine['took_s']:.3f} s ({mine['first_s']:.3f} the first "
                       f"time) and {mine['held_most'] >> 20} MiB with layers that leave")
        must(said == again and row.pop("sums") == mine.pop("sums"), "  equal tokens and layers")
        must(mine["held_most"] <= 0.2 * row["held_most"],
             f"  bytes on the GPU: {100 - 100 * mine['held_most'] / row['held_most']:.1f} % fewer (80)")
        if self.device.type == "cuda":
            must(mine["took_s"] <= 1.05 * row["took_s"], f"  in {mine['took_s'] / row['took_s']:.3f} of the time (1.05)")
        self.bench.results["prompt"] = {"whole": row, "layers": mine}
