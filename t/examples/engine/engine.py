# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Continuous batching: requests wait in a queue, come in when there is memory for them, are prefilled together, and decode
in one batch, which sequences join and leave at any step. It does not know where a request is going to stop, as no engine
does, so it lets them in as long as there is memory for what they have; when that is short, the sequence that came last
goes back to the queue and is prefilled again later, with what it has said so far.

Beginnings that are shared (Request.shared) are published under a hash of their tokens by the first that has them, and
adopted by the others. Samples of one prompt are forks of a sequence that was prefilled once.

All that a step needs lies in tensors with a place for each slot, and a step reads which slots it is for. So where the
cache's addresses stay, a step is captured in a CUDA graph for each size of a batch, and replayed.
"""

import collections
import functools
import hashlib
import random
import time
from dataclasses import dataclass, field

import torch

from attention import sent
from caches import Full
from model import choose


def now():
    return time.monotonic()  # real time


@dataclass
class Request:
    number: int
    prompt: list
    stop: int  # tokens that it gets; the engine learns of it when they are there
    heat: float = 0.0  # 0: greedy
    seed: int = 0
    samples: int = 1
    shared: int = 0  # first tokens of the prompt that others have too


@dataclass
class Sequence:
    request: Request
    sample: int
    tokens: list  # to be prefilled
    made: int = 0  # of its answer
    slot: int = -1
    margins: list = field(default_factory=list)

    @property
    def seed(self):
        return self.request.seed * 1009 + self.sample


@functools.lru_cache(16)
def load(shape, count, most, seed, shares=0, samples=1, prefixes=4, heat=0.8, midway=0):
    """
    Requests whose lengths are log-normal with a mean of a quarter of the most; a quarter of each is the prompt. Every
    other one is greedy. Of the prompts `shares` of a hundred begin with one of a few prefixes, of an eighth of the most.
    The first `midway` are found in the middle of their lives: some of the answer is in the prompt.
    """
    draw = random.Random(seed)
    spread = 0.8
    beginnings = [[draw.randrange(shape.vocabulary) for _ in range(most // 8)] for _ in range(prefixes)]
    requests = []
    for number in range(count):
        # exp of a normal number has the mean exp(spread^2 / 2)
        total = draw.lognormvariate(0, spread) * most / 4 / 2.718281828 ** (spread**2 / 2)
        total = int(min(max(total, 16), most))
        prompt = max(total // 4, 4)
        shared = 0
        if draw.randrange(100) < shares and total > most // 8 + 8:
            shared = most // 8
            prompt = max(prompt, shared + 4)
        aged, beginning, own = draw.randrange(total - prompt), draw.choice(beginnings), draw.randrange(1 << 30)
        if number >= midway:
            aged = 0
        words = random.Random(own)  # so that an age changes nothing else
        tokens = [words.randrange(shape.vocabulary) for _ in range(prompt + aged)]
        if shared:
            tokens[:shared] = beginning
        requests.append(Request(number, tokens, max(total - prompt - aged, 1), heat if number % 2 else 0.0,
                                own, samples if number % 8 == 3 else 1, shared))
    return requests


class Graph:
    """A step of a batch of a size, captured."""

    def __init__(self, engine, size):
        self.slots = torch.full((size,), engine.cache.spare, device=engine.model.device)
        engine.step_of(self.slots)  # kernels are compiled and loaded, on a row that is nobody's
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        # another thread may map pages meanwhile, which harms no capture
        with torch.cuda.graph(self.graph, pool=engine.pool, capture_error_mode="thread_local"):
            engine.step_of(self.slots)


class Engine:
    def __init__(self, model, cache, chunk=8192, watch=False, graphs=True):
        self.model, self.cache, self.chunk, self.watch = model, cache, chunk, watch
        self.queue, self.running, self.answers = collections.deque(), [], {}
        self.publishes = cache.published(b"") is not None
        self.graphs = {} if graphs and cache.graphs and model.device.type == "cuda" else None
        if self.graphs is not None:
            self.pool = torch.cuda.graph_pool_handle()  # one for all, since they run one after the other
        self.changed, self.slots, self.preparing = True, None, 0.0
        places = cache.slots + 1
        new = {"device": model.device}
        self.text = torch.zeros(places, cache.most + 2, dtype=torch.int64, **new)
        self.margins = torch.zeros(places, cache.most + 2, **new)
        self.position = torch.zeros(places, dtype=torch.int64, **new)  # of the last token, which has no keys yet
        self.seeds = torch.zeros(places, dtype=torch.int64, **new)
        self.heat = torch.zeros(places, **new)
        self.in_flight = collections.deque()
        self.steps = self.made = self.prefilled = self.preempted = self.most_running = self.adopted = self.forked = 0
        self.running_sum, self.samples_of_memory, self.saved, self.admitted = 0, [], 0, 0

    # what a sequence comes in with

    def key_of(self, request):
        if not self.publishes or not request.shared:
            return None
        return hashlib.sha256(repr(request.prompt[:request.shared]).encode()).digest()

    def has_room(self, group, key):
        """For what they do not share, about; the cache knows it to the byte, and says so."""
        cache, tokens = self.cache, len(group[0].tokens) + 1
        others = (len(group) - 1) * cache.cost(1 if self.publishes else tokens)
        if key and cache.published(key):
            tokens -= group[0].request.shared
        return not self.running or cache.used() + cache.cost(tokens) + others + cache.reserve <= cache.budget

    def admit(self):
        """As many from the queue as there is memory for, prefilled in one go. Whether there were any."""
        parts, groups, tokens, coming = [], [], 0, set()
        while self.queue and tokens < self.chunk:
            group = self.queue[0]
            first = group[0]
            count, key = len(first.tokens), self.key_of(first.request)
            if key in coming or len(self.running) + sum(map(len, groups)) + len(group) > self.cache.slots:
                break  # a beginning that is just being made can be adopted in the next step
            try:
                if not self.has_room(group, key):
                    raise Full
                first.slot, had = self.cache.new(count, key)
            except Full:
                # the first time: after so many steps that it is the same for all caches that cost the same
                self.admitted = self.admitted or len(self.running) + sum(map(len, groups))
                break
            self.queue.popleft()
            if key and not had:
                coming.add(key)
            self.adopted += had > 0
            parts.append((first.slot, had, count - had))
            groups.append(group)
            tokens += count - had
            if group[1:]:
                break  # it is forked when it is there
        if groups:
            self.prefill(groups, parts)
            return True
        if self.queue and not self.running:
            if not self.cache.withdraw():
                raise Full(f"{len(self.queue[0][0].tokens)} tokens are more than there is memory for")
        return False

    def prefill(self, groups, parts):
        device, cache = self.model.device, self.cache
        rows = [(slot, had + i, token) for group, (slot, had, _) in zip(groups, parts)
                for i, token in enumerate(group[0].tokens[had:])]
        slots, places, tokens = sent(rows, device).t()
        ends, at = [], 0
        for _, _, count in parts:
            at += count
            ends.append(at - 1)
        x = self.model.forward(tokens, places, lambda layer, q, k, v: cache.prefill(layer, q, k, v, parts))
        logits = self.model.logits(x[sent(ends, device)])
        self.prefilled += at
        self.text[slots, places] = tokens
        for group in groups:
            request, first = group[0].request, group[0]
            key = self.key_of(request)
            if key and not cache.published(key):
                cache.publish(first.slot, key, request.shared)
        rows = []
        for row, group in enumerate(groups):
            for sequence in group:
                if sequence is not group[0]:
                    try:
                        sequence.slot = cache.fork(group[0].slot, len(sequence.tokens))
                        self.forked += 1
                    except Full:  # it goes by itself then
                        self.queue.appendleft([sequence])
                        continue
                self.running.append(sequence)
                rows.append((row, sequence.slot, len(sequence.tokens), sequence.seed))
        row, slots, ends, seeds = sent(rows, device).t()
        heat = sent([s.request.heat for s in self.running[-len(rows):]], device)
        self.position[slots], self.seeds[slots], self.heat[slots] = ends, seeds, heat
        self.say(slots, ends, *choose(logits[row], seeds, ends, heat))
        for sequence in self.running[-len(rows):]:
            sequence.made += 1
            self.made += 1
        self.changed = True

    def say(self, slots, places, tokens, margins):
        self.text[slots, places] = tokens
        if self.watch:
            self.margins[slots, places] = margins.to(self.margins.dtype)

    # a step

    def step_of(self, slots):
        """A token more for each of these slots: nothing in it depends on what the host knows."""
        positions = self.position[slots]
        at = self.cache.begin(slots, positions)
        x = self.model.forward(self.text[slots, positions], positions,
                               lambda layer, q, k, v: self.cache.decode(layer, q, k, v, at))
        tokens, margins = choose(self.model.logits(x), self.seeds[slots], positions + 1, self.heat[slots])
        self.say(slots, positions + 1, tokens, margins)
        self.position[slots] = positions + 1
        self.position[self.cache.spare].zero_()

    @staticmethod
    def size_for(count):
        return 16 if count <= 16 else -(-count // 32) * 32

    def told(self, sequence, tokens):
        """The answer so far, and how far the next best was behind each token of it."""
        begin, had = len(sequence.request.prompt), len(sequence.margins)
        margins = self.margins[sequence.slot, begin + had:tokens].tolist() if self.watch else []
        return self.text[sequence.slot, begin:tokens].tolist(), sequence.margins + margins

    def preempt(self):
        sequence = self.running.pop()
        told, margins = self.told(sequence, self.cache.tokens[sequence.slot] + 1)
        sequence.tokens, sequence.margins = sequence.request.prompt + told, margins
        self.cache.free(sequence.slot)
        self.queue.appendleft([sequence])
        self.preempted += 1
        self.changed = True

    def decode(self):
        cache = self.cache
        while True:  # memory for a token more of each
            lengths = list(cache.tokens)
            for sequence in self.running:
                lengths[sequence.slot] += 1
            try:
                cache.step(lengths)
                break
            except Full:
                if len(self.running) > 1:
                    self.preempt()
                elif not cache.withdraw():
                    raise
        if self.changed:  # the longest first: no part of the GPU is left with one of them at the end
            slots = sorted((s.slot for s in self.running), key=lambda slot: -cache.tokens[slot])
            size = self.size_for(len(slots)) if self.graphs is not None else len(slots)
            self.order, self.size = slots, size
            self.slots = sent(slots + [cache.spare] * (size - len(slots)), self.model.device)
            if self.graphs is not None:
                if size not in self.graphs:
                    begin = now()
                    torch.cuda.synchronize()
                    self.graphs[size] = Graph(self, size)
                    self.preparing += now() - begin
                self.graphs[size].slots.copy_(self.slots)
            self.changed = False
        cache.plan(self.order)
        if self.graphs is not None:
            self.graphs[self.size].graph.replay()
        else:
            self.step_of(self.slots)
        for sequence in self.running:
            sequence.made += 1
        self.made += len(self.running)
        self.steps += 1
        self.running_sum += len(self.running)
        self.most_running = max(self.most_running, len(self.running))
        if self.steps % 16 == 0:
            self.samples_of_memory.append((cache.held(), cache.needed()))
            self.saved = max(self.saved, cache.saved())

    def end(self):
        over = [s for s in self.running if s.made >= s.request.stop]
        for sequence in over:
            if self.watch:
                request = sequence.request
                self.answers[request.number, sequence.sample] = self.told(
                    sequence, len(request.prompt) + request.stop)
            self.cache.free(sequence.slot)
            self.changed = True
        if over:
            self.running = [s for s in self.running if s.made < s.request.stop]

    def put(self, requests):
        for request in requests:
            group = [Sequence(request, i, request.prompt) for i in range(request.samples)]
            self.queue.extend([group] if len(group) <= self.cache.slots else [[one] for one in group])

    def pace(self):
        """The host is at most two steps ahead, as one that looks for the end of an answer would be."""
        if self.model.device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
            self.in_flight.append(event)
            if len(self.in_flight) > 2:
                self.in_flight.popleft().synchronize()

    @torch.inference_mode()
    def run(self, seconds=None, fills=False):
        """
        Until all requests have their answers, or for some time; if it fills, until nobody more comes in, too. Tokens
        made, and seconds, without those that it took to compile and to capture, which a server does once.
        """
        begin, before, prepared = now(), self.made, self.preparing
        while self.queue or self.running:
            came = self.admit()
            self.end()
            if self.running:
                self.decode()
                self.end()
            self.pace()
            if seconds and now() - begin - self.preparing + prepared > seconds and not (came and fills):
                break
        if self.model.device.type == "cuda":
            torch.cuda.synchronize()
        return self.made - before, now() - begin - self.preparing + prepared

    def stop(self):
        """Ends all sequences, and what is published."""
        for sequence in self.running:
            self.cache.free(sequence.slot)
        self.running, self.graphs = [], None
        self.cache.withdraw()
