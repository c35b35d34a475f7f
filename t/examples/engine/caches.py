# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Caches of keys and values behind one face, and with one budget in bytes:

    concat  a tensor for each sequence and layer, made anew by torch.cat with each token; concat-packed has one tensor
            for all sequences of a layer
    static  [slots, most tokens] of each layer, taken at the start
    paged   blocks of 16 tokens from a pool, and a table of those of each sequence; kernels look tokens up in it:
            flashinfer's where that is installed, else flex attention. paged-own has the kernel of static and glake
    glake   [slots, most tokens] of addresses, with memory for the tokens there are (glake.kv.Cache); all layers of a
            token beside each other, in glake-layer each layer by itself. glake-host has the last tokens of a sequence on
            the GPU, in lanes with a window, and those before them on the host, whose processor attends to them meanwhile

The engine calls new, step, fork, free for the memory of sequences; plan and begin once a step, and decode for each layer
in between; prefill for prompts. Full says that there is no memory now, and then nothing has changed.

static and glake are the same to kernels: rows at plain strides, in which a sequence begins at slot * so many. All that
glake has to say about a step is one call, for all sequences and layers.
"""

import functools
import math
import warnings
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch.nn.attention import flex_attention as flex

import attention

try:
    import flashinfer
except ImportError:
    flashinfer = None


PAGE = 2 << 20  # of a GPU, as the library maps them


class Full(Exception):
    pass


class Cache:
    graphs = True  # whether a step may be captured: all addresses stay as they are
    most_far = 0  # tokens of a sequence that were on the host

    def __init__(self, shape, budget, most, slots, device, dtype, way):
        self.shape, self.budget, self.most, self.slots = shape, budget, most, slots
        self.device, self.dtype, self.way = device, dtype, way
        self.token = 2 * shape.layers * shape.groups * shape.size * dtype.itemsize  # bytes of one, in all layers
        self.tokens = [0] * (slots + 1)  # of each slot; the last is for rows of a batch that are nobody's
        self.spare = slots
        self.free_slots = list(range(slots))[::-1]
        self.now = []
        # what is left free when one comes in, so that it does not have to go at once
        self.reserve = budget // 25

    def needed(self):
        return sum(self.tokens) * self.token

    def cost(self, tokens):
        """Bytes that a sequence of so many tokens takes."""
        return tokens * self.token

    def used(self):
        """Bytes that sequences have."""
        return sum(self.cost(n) for n in self.tokens if n)

    held = used  # bytes that are gone for others

    def saved(self):
        """Bytes that sharing saves now."""
        return 0

    def take(self, tokens):
        if not self.free_slots:
            raise Full
        slot = self.free_slots.pop()
        self.tokens[slot] = tokens
        return slot

    def new(self, tokens, key=None):
        """A sequence of so many tokens, which may begin with what is published under a key. Its slot, how many that are."""
        if self.used() + self.cost(tokens) > self.budget:
            raise Full
        return self.take(tokens), 0

    def step(self, lengths):
        """Each sequence is to have so many tokens; 0 in slots that stay as they are."""
        more = sum(self.cost(n) - self.cost(had) for n, had in zip(lengths, self.tokens) if n > had)
        if self.used() + more > self.budget:
            raise Full
        self.set(lengths)

    def set(self, lengths):
        self.tokens = [max(n, had) for n, had in zip(lengths, self.tokens)]

    def free(self, slot):
        self.tokens[slot] = 0
        self.free_slots.append(slot)

    def publish(self, slot, key, tokens):
        pass

    def published(self, key):
        """Whether something is, or None where nothing can be."""

    def withdraw(self):
        """Nothing is published any more. How many were."""
        return 0

    def starts(self, rows):
        return attention.flash_starts(rows) if self.way == "flash" else rows

    def plan(self, slots):
        """What the next step is for, on the host."""
        self.now = slots

    def close(self):
        pass


class Concat(Cache):
    graphs = False

    def __init__(self, *options):
        super().__init__(*options)
        self.kept, self.way = {}, "loop"
        self.before = torch.cuda.memory_reserved() if self.device.type == "cuda" else 0

    def used(self):
        # a layer's keys of the longest are there twice while it grows
        return super().used() + max(self.tokens) * self.token // (2 * self.shape.layers)

    def held(self):
        if self.device.type == "cuda":
            return torch.cuda.memory_reserved() - self.before
        return self.used()

    def new(self, tokens, key=None):
        slot, had = super().new(tokens)
        self.kept[slot] = [None] * self.shape.layers
        return slot, had

    def fork(self, slot, tokens):
        if self.used() + self.cost(tokens) > self.budget:
            raise Full
        other = self.take(tokens)
        self.kept[other] = list(self.kept[slot])
        return other

    def free(self, slot):
        super().free(slot)
        del self.kept[slot]

    def prefill(self, layer, q, k, v, parts):
        at = 0
        for slot, _, count in parts:
            # copies, for else a slice would keep the keys of all prompts
            self.kept[slot][layer] = k[at:at + count].clone(), v[at:at + count].clone()
            at += count
        return attention.of_prompts(q, k, v, [count for _, _, count in parts])

    def begin(self, slots, positions):
        return None

    def decode(self, layer, q, k, v, step):
        out = torch.empty_like(q)
        for i, slot in enumerate(self.now):
            keys, values = self.kept[slot][layer]
            self.kept[slot][layer] = keys, values = torch.cat((keys, k[i:i + 1])), torch.cat((values, v[i:i + 1]))
            out[i] = attention.over(q[i:i + 1], keys, values)[0]
        return out


class Packed(Concat):
    """All sequences of a layer in one tensor, which one torch.cat makes anew: as much is copied, with fewer calls."""

    def __init__(self, shape, budget, most, slots, device, dtype, way):
        super().__init__(shape, budget, most, slots, device, dtype, way)
        self.way = way
        self.order = []  # of the sequences in `packed`, and how many tokens they have there
        self.counts, self.packed = [], [None] * shape.layers

    def used(self):
        return Cache.used(self) * (2 * self.shape.layers + 1) // (2 * self.shape.layers)

    def plan(self, slots):
        self.was, self.counted = self.order, self.counts
        self.order, self.counts = slots, [self.tokens[slot] for slot in slots]
        super().plan(slots)

    def begin(self, slots, positions):
        lengths = positions + 1
        return self.starts(lengths.cumsum(0) - lengths), lengths.int(), None

    def decode(self, layer, q, k, v, step):
        both = []
        for which, new in enumerate((k, v)):
            had = {}
            if self.was:
                had = dict(zip(self.was, self.packed[layer][which].split(self.counted)))
            pieces = []
            for slot, row in zip(self.now, new.split(1)):
                fresh = self.kept[slot][layer]  # of a sequence that has just come in
                pieces += [had[slot] if fresh is None else fresh[which], row]
            both.append(torch.cat(pieces))
        self.packed[layer] = both
        for slot in self.now:
            self.kept[slot][layer] = None
        starts, lengths, _ = step
        if self.way == "triton":
            return attention.by_triton(q, *both, starts, lengths)
        if self.way == "flash":
            return attention.by_flash(q, *both, starts, lengths, self.most)
        parts = list(zip(*(x.split(self.counts) for x in both)))
        return attention.by_loop(q, lambda i, n: parts[i], self.counts)


class Rows(Cache):
    """Keys and values of a layer are [rows, groups, size]; token t of a sequence is in row start + t."""

    def read(self, layer, slot, tokens):
        start = slot * self.each
        return tuple(lane[start:start + tokens] for lane in self.lanes[layer])

    def places(self, slots, positions):
        return slots * self.each + positions

    def prefill(self, layer, q, k, v, parts):
        if not layer:
            self.written = torch.cat([self.places(
                torch.full((count,), slot, device=self.device),
                torch.arange(begin, begin + count, device=self.device)) for slot, begin, count in parts])
        for lane, new in zip(self.lanes[layer], (k, v)):
            lane.index_copy_(0, self.written, new)
        counts = [count for _, _, count in parts]
        if not any(begin for _, begin, _ in parts):
            return attention.of_prompts(q, k, v, counts)
        out = []
        for (slot, begin, count), queries in zip(parts, q.split(counts)):
            out.append(attention.over(queries, *self.read(layer, slot, begin + count)))
        return torch.cat(out)

    def begin(self, slots, positions):
        return self.starts(slots * self.each), (positions + 1).int(), self.places(slots, positions)

    def decode(self, layer, q, k, v, step):
        starts, lengths, places = step
        keys, values = self.lanes[layer]
        keys.index_copy_(0, places, k)
        values.index_copy_(0, places, v)
        return self.attend(layer, q, keys, values, starts, lengths)

    def attend(self, layer, q, keys, values, starts, lengths):
        if self.way == "triton":
            return attention.by_triton(q, keys, values, starts, lengths)
        if self.way == "flash":
            return attention.by_flash(q, keys, values, starts, lengths, self.most)
        return self.looped(layer, q)

    def looped(self, layer, q):
        return attention.by_loop(q, lambda i, n: self.read(layer, self.now[i], n), [self.tokens[s] for s in self.now])


class Static(Rows):
    def __init__(self, shape, budget, most, slots, device, dtype, way):
        token = 2 * shape.layers * shape.groups * shape.size * dtype.itemsize
        slots = min(slots, (budget - token) // (most * token))
        if slots < 1:
            raise Full(f"{budget} bytes are less than a slot")
        super().__init__(shape, budget, most, slots, device, dtype, way)
        self.graphs, self.each, self.reserve = way != "loop", most, 0
        self.lanes = [tuple(torch.zeros(slots * most + 1, shape.groups, shape.size, device=device, dtype=dtype)
                            for _ in range(2)) for _ in range(shape.layers)]

    def cost(self, tokens):
        return self.most * self.token

    def held(self):
        return self.slots * self.most * self.token

    def fork(self, slot, tokens):
        other = self.take(tokens)
        for layer in range(self.shape.layers):
            for to, of in zip(self.read(layer, other, tokens), self.read(layer, slot, tokens)):
                to.copy_(of)
        return other

    def close(self):
        self.lanes = None


class Glake(Rows):
    def __init__(self, shape, budget, most, slots, device, dtype, way, token_front=True, ahead=0, window=0, large=False):
        import glake
        from glake import kv
        super().__init__(shape, budget, most, slots, device, dtype, way)
        self.glake, self.graphs = glake, way != "loop"
        lanes, self.token_front = 2 * shape.layers, token_front
        # slots begin at pages; that they are a whole number of tokens apart, too, takes addresses and no memory
        apart = PAGE // math.gcd(PAGE, self.token if token_front else self.token // lanes)
        lane = kv.Lane((shape.groups, shape.size), dtype, window)
        self.cache = kv.Cache(slots + 1, -(-most // apart) * apart, [lane] * lanes, device=device,
                              token_front=token_front, limit=budget, ahead=ahead, prefixes=64, large=large)
        flat = []
        for number in range(lanes):
            lane = self.cache.lane(number)
            token = lane.stride(1)
            self.each = lane.stride(0) // token
            # the last slot ends with its last token
            flat.append(lane.as_strided((slots * self.each + most, *lane.shape[2:]), (token, *lane.stride()[2:])))
        self.lanes = list(zip(flat[::2], flat[1::2]))
        self.keys = set()
        self.spare = self.cache.new(1)
        self.cache.grow(self.spare, 1)
        for lane in flat:
            lane[self.spare * self.each] = 0
        self.rest = self.cache.figures()["held"]
        self.free_slots = []  # the library has them

    def tried(self, call, *arguments):
        try:
            return call(*arguments)
        except self.glake.GlakeError:
            if self.glake.last_error()["err"] in (-12, -122):  # -ENOMEM, -EDQUOT: the limit
                raise Full from None
            raise

    def cost(self, tokens):
        lanes = 1 if self.token_front else 2 * self.shape.layers
        return lanes * -(-tokens * self.token // (lanes * PAGE)) * PAGE

    def used(self):
        return self.cache.figures()["held"]

    held = used

    def saved(self):
        return self.cache.figures()["shared"]

    def new(self, tokens, key=None):
        if sum(map(bool, self.tokens)) == self.slots:
            raise Full
        slot, had = self.cache.new(self.most), 0
        try:
            if key:
                had = self.tried(self.cache.adopt, slot, key)
            self.tried(self.cache.grow, slot, tokens)
        except Full:
            self.cache.free(slot)
            raise
        self.tokens[slot] = tokens
        return slot, had

    def step(self, lengths):
        self.tried(self.cache.step, lengths)
        self.set(lengths)

    def fork(self, slot, tokens):
        other = self.tried(self.cache.fork, slot, tokens, self.most)
        self.tokens[other] = tokens
        return other

    def free(self, slot):
        self.tokens[slot] = 0
        self.cache.free(slot)

    def published(self, key):
        return key in self.keys

    def publish(self, slot, key, tokens):
        try:
            self.tried(self.cache.publish, slot, key, tokens)
            self.keys.add(key)
        except Full:
            pass  # then the next one is prefilled too

    def withdraw(self):
        for key in self.keys:
            self.cache.withdraw(key)
        count, self.keys = len(self.keys), set()
        return count

    def close(self):
        self.withdraw()
        self.cache.free(self.spare)
        left = self.cache.figures()
        self.lanes = None
        self.cache.close()
        self.glake.trim()
        if left["sequences"] or left["held"] or left["shared"]:
            raise AssertionError(f"left at the end: {left}")


class GlakeLayer(Glake):
    def __init__(self, *options, **more):
        super().__init__(*options, token_front=False, **more)


class GlakeHost(Glake):
    """
    Of a sequence at least `keep` tokens are on the GPU, and the window has room for a chunk more. When it is full the
    first chunk of it goes to the host, to those that were there before, and the pages in front of the window are given
    back as the sequence grows. A token attends to both parts at once: the GPU to its own, and a thread of the host to
    the others; what they say is put together by what they weigh.
    """
    chunk = 32

    def __init__(self, shape, budget, most, slots, device, dtype, way, keep=1024, **options):
        self.keep = keep
        super().__init__(shape, budget, most, slots, device, dtype, way, window=keep + self.chunk, **options)
        self.graphs = False
        self.way = "triton" if way == "triton" else "loop"
        self.front = [0] * (slots + 1)  # tokens of each slot that are on the host
        self.fronts = torch.zeros(slots + 1, dtype=torch.int64, device=device)
        self.host = {}  # of a slot: [lanes, tokens, groups, size]
        self.helper = ThreadPoolExecutor(1)

    def cost(self, tokens):
        return super().cost(min(tokens, self.keep + self.chunk)) + PAGE

    def settle(self, slot, tokens):
        """The first tokens of a slot are the host's; there is room for them."""
        self.front[slot] = self.fronts[slot] = tokens
        self.most_far = max(self.most_far, tokens)
        had = self.host.get(slot)
        if tokens and (had is None or had.shape[1] < tokens):
            self.host[slot] = torch.empty(2 * self.shape.layers, 2 * tokens, self.shape.groups, self.shape.size,
                                          dtype=self.dtype)
            if had is not None:
                self.host[slot][:, :had.shape[1]] = had

    def read(self, layer, slot, tokens):
        start = slot * self.each
        return tuple(lane[start + self.front[slot]:start + tokens] for lane in self.lanes[layer])

    def far(self, layer, slot):
        return tuple(lane[:self.front[slot]] for lane in self.host[slot][2 * layer:2 * layer + 2])

    def new(self, tokens, key=None):
        slot, had = super().new(tokens)
        self.settle(slot, max(tokens - self.keep, 0) // self.chunk * self.chunk)
        return slot, had

    def step(self, lengths):
        for slot, tokens in enumerate(lengths):
            first = self.front[slot]
            if tokens - first <= self.keep + self.chunk:
                continue
            self.settle(slot, first + self.chunk)
            start = slot * self.each
            for number, lane in enumerate(lane for lanes in self.lanes for lane in lanes):
                self.host[slot][number, first:first + self.chunk] = lane[start + first:start + first + self.chunk]
        super().step(lengths)

    def fork(self, slot, tokens):
        other = super().fork(slot, tokens)
        self.settle(other, self.front[slot])
        if self.front[slot]:
            self.host[other][:, :self.front[slot]] = self.host[slot][:, :self.front[slot]]
        return other

    def free(self, slot):
        super().free(slot)
        self.front[slot] = self.fronts[slot] = 0
        self.host.pop(slot, None)

    def published(self, key):
        """Nothing is: a beginning is on the host."""

    def prefill(self, layer, q, k, v, parts):
        at, rows = 0, []
        for slot, _, count in parts:
            first = self.front[slot]
            if first:
                for number, new in enumerate((k, v)):
                    self.host[slot][2 * layer + number, :first] = new[at:at + first]
            rows.append((slot, first, at + first, at + count))
            at += count
        for lane, new in zip(self.lanes[layer], (k, v)):
            for slot, first, begin, end in rows:
                start = slot * self.each + first
                lane[start:start + end - begin] = new[begin:end]
        return attention.of_prompts(q, k, v, [count for _, _, count in parts])

    def begin(self, slots, positions):
        front = self.fronts[slots]
        return slots * self.each + front, (positions + 1 - front).int(), self.places(slots, positions)

    def attended(self, layer, q, ready):
        """The host's part, on a thread of its own."""
        if ready:
            ready.synchronize()
        with torch.inference_mode():
            return attention.halves(q, lambda i, n: self.far(layer, self.now[i]), [self.front[slot] for slot in self.now])

    def attend(self, layer, q, keys, values, starts, lengths):
        there, ready = q, None
        if self.device.type == "cuda":
            there, ready = torch.empty(q.shape, dtype=q.dtype, pin_memory=True), torch.cuda.Event()
            there.copy_(q, non_blocking=True)
            ready.record()
        coming = self.helper.submit(self.attended, layer, there, ready)
        if self.way == "triton":
            here = attention.by_triton(q, keys, values, starts, lengths, apart=True)
        else:
            here = attention.halves(q, lambda i, n: self.read(layer, self.now[i], n), [self.tokens[s] for s in self.now])
        far = (x.to(self.device) for x in coming.result())
        return attention.merged(here, tuple(far)).to(q.dtype)

    def close(self):
        self.helper.shutdown()
        super().close()


@functools.lru_cache
def flex_kernels(compiled):
    if not compiled:
        return flex.flex_attention
    torch._dynamo.config.recompile_limit = 256  # one for each size of a batch
    return torch.compile(flex.flex_attention, dynamic=False)


class Paged(Rows):
    block = 16
    kernel = None  # as the host has it: flashinfer, else flex

    def __init__(self, shape, budget, most, slots, device, dtype, way):
        super().__init__(shape, budget, most, slots, device, dtype, way)
        self.way = self.kernel or ("flashinfer" if flashinfer and device.type == "cuda" else "flex")
        if self.way == "own":
            self.way = "triton" if way == "triton" else "loop"
        self.graphs = self.way in ("flex", "triton") and device.type == "cuda"
        most_blocks = -(-most // self.block)
        self.blocks = min(budget // (self.block * self.token), slots * most_blocks + 1)
        shape_of = (self.blocks * self.block, shape.groups, shape.size)
        self.lanes = [tuple(torch.zeros(shape_of, device=device, dtype=dtype) for _ in range(2))
                      for _ in range(shape.layers)]
        self.unused = list(range(1, self.blocks))[::-1]  # block 0 is the spare row's
        self.users = [0] * self.blocks
        self.lists = [[] for _ in range(slots + 1)]
        self.prefixes = {}
        # where the tokens of a sequence are, and which of its blocks a block is: -1 if it is none
        self.table = torch.zeros(slots + 1, most_blocks + 1, device=device, dtype=torch.int32)
        self.logical = torch.full((slots + 1, self.blocks), -1, device=device, dtype=torch.int32)
        self.logical[slots, 0] = 0
        self.lists[slots] = [0]
        if self.way == "flex":
            self.kernels = flex_kernels(device.type == "cuda")
        elif self.way == "flashinfer":  # untried: no host of ours has it
            space = torch.empty(256 << 20, dtype=torch.uint8, device=device)
            self.wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(space, "NHD")

    def cost(self, tokens):
        return -(-tokens // self.block) * self.block * self.token

    def used(self):
        return (self.blocks - len(self.unused)) * self.block * self.token

    held = used

    def saved(self):
        return sum(max(n - 1, 0) for n in self.users) * self.block * self.token

    def places(self, slots, positions):
        return self.table[slots, positions // self.block].long() * self.block + positions % self.block

    def read(self, layer, slot, tokens):
        blocks = self.table[slot, :-(-tokens // self.block)].long()
        return tuple(lane.view(self.blocks, self.block, *lane.shape[1:])[blocks].flatten(0, 1)[:tokens]
                     for lane in self.lanes[layer])

    def give(self, slot, blocks):
        """More blocks of a sequence."""
        self.enter([(slot, len(self.lists[slot]) + i, block) for i, block in enumerate(blocks)])
        self.lists[slot] += blocks
        for block in blocks:
            self.users[block] += 1

    def enter(self, rows):
        if rows:
            slots, numbers, blocks = attention.sent(rows, self.device).t()
            self.table[slots, numbers] = blocks.int()
            self.logical[slots, blocks] = numbers.int()

    def drop(self, blocks):
        for block in blocks:
            self.users[block] -= 1
            if not self.users[block]:
                self.unused.append(block)

    def fresh(self, count):
        if count > len(self.unused):
            raise Full
        return [self.unused.pop() for _ in range(count)]

    def new(self, tokens, key=None):
        had = self.prefixes.get(key, [])
        if not self.free_slots:
            raise Full
        fresh = self.fresh(-(-tokens // self.block) - len(had))
        slot = self.take(tokens)
        self.give(slot, had + fresh)
        return slot, len(had) * self.block

    def step(self, lengths):
        short = [slot for slot, n in enumerate(lengths) if n > len(self.lists[slot]) * self.block]
        blocks = self.fresh(len(short))
        self.enter([(slot, len(self.lists[slot]), block) for slot, block in zip(short, blocks)])
        for slot, block in zip(short, blocks):
            self.lists[slot].append(block)
            self.users[block] += 1
        self.set(lengths)

    def fork(self, slot, tokens):
        if not self.free_slots:
            raise Full
        whole = tokens // self.block
        fresh = self.fresh(-(-tokens // self.block) - whole)
        other = self.take(tokens)
        self.give(other, self.lists[slot][:whole] + fresh)
        if fresh:
            for lane in (lane for lanes in self.lanes for lane in lanes):
                blocks = lane.view(self.blocks, self.block, *lane.shape[1:])
                blocks[fresh[0]] = blocks[self.lists[slot][whole]]
        return other

    def free(self, slot):
        super().free(slot)
        self.logical[slot].fill_(-1)
        self.drop(self.lists[slot])
        self.lists[slot] = []

    def published(self, key):
        return key in self.prefixes

    def publish(self, slot, key, tokens):
        self.prefixes[key] = self.lists[slot][:tokens // self.block]
        for block in self.prefixes[key]:
            self.users[block] += 1

    def withdraw(self):
        for blocks in self.prefixes.values():
            self.drop(blocks)
        count, self.prefixes = len(self.prefixes), {}
        return count

    def plan(self, slots):
        super().plan(slots)
        if self.way == "flashinfer":
            lists = [self.lists[slot][:-(-self.tokens[slot] // self.block)] for slot in slots]
            ends = F.pad(torch.tensor([len(x) for x in lists]).cumsum(0), (1, 0)).int()
            last = torch.tensor([(self.tokens[slot] - 1) % self.block + 1 for slot in slots], dtype=torch.int32)
            self.wrapper.plan(ends.to(self.device), torch.tensor(sum(lists, []), dtype=torch.int32).to(self.device),
                              last.to(self.device), self.shape.heads, self.shape.groups, self.shape.size, self.block,
                              q_data_type=self.dtype)

    def begin(self, slots, positions):
        lengths, places = (positions + 1).int(), self.places(slots, positions)
        if self.way != "flex":
            return slots, lengths, places
        table, block, logical = self.table[slots], self.block, self.logical
        last = table.gather(1, (lengths // block)[:, None].long()).expand_as(table).contiguous()

        def mask(b, h, q, row):
            number = logical[slots[b], row // block]
            return (number >= 0) & (number * block + row % block < lengths[b])

        # whole blocks need no mask, and the last one, if it is a part, does
        where = flex.BlockMask.from_kv_blocks(
            (lengths % block > 0).int()[:, None, None], last[:, None, None], (lengths // block)[:, None, None],
            table[:, None, None], BLOCK_SIZE=(128, block), mask_mod=mask, compute_q_blocks=False,
            seq_lengths=(1, self.blocks * block))
        return where, lengths, places

    def attend(self, layer, q, keys, values, at, lengths):
        if self.way == "flex":
            with warnings.catch_warnings():  # of being slow, where it is not compiled
                warnings.simplefilter("ignore")
                return self.kernels(q[:, :, None], *(x.transpose(0, 1)[None] for x in (keys, values)),
                                    block_mask=at, enable_gqa=True)[:, :, 0]
        if self.way == "flashinfer":
            pools = (x.view(self.blocks, self.block, *x.shape[1:]) for x in (keys, values))
            return self.wrapper.run(q, tuple(pools))
        if self.way == "triton":
            return attention.by_triton(q, keys, values, at, lengths, self.table, self.block)
        return self.looped(layer, q)

    def close(self):
        self.withdraw()
        self.lanes = None
        if len(self.unused) != self.blocks - 1:
            raise AssertionError(f"left at the end: {self.blocks - 1 - len(self.unused)} blocks")


class PagedOwn(Paged):
    """With the kernel that static and glake have, and a table."""
    kernel = "own"


CACHES = {"concat": Concat, "concat-packed": Packed, "static": Static, "paged": Paged, "paged-own": PagedOwn, "glake": Glake,
          "glake-layer": GlakeLayer, "glake-host": GlakeHost}
SHARING = [name for name in CACHES if name.startswith(("glake", "paged")) and name != "glake-host"]
