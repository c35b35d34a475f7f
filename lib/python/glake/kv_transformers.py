# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The cache of transformers' models in memory that grows in place: see kv.py. It is a Cache of that package, with layers
of its own classes, so that generate(), beam search, cropping and masks work as with DynamicCache, whose tensors are
made anew with each token. Layers with a sliding window keep the memory of their window.

    past = glake.kv.TransformersCache(model.config)
    out = model.generate(**inputs, past_key_values=past)

The most tokens of a sequence are those that the model can, or tokens=N: they are addresses, and take no memory. The
batch is that of the first call, or slots=N where it grows later. All layers have keys and values of one shape.

All sequences of a batch are as long as each other, so a token of the memory is that of all of them: a lane is a layer, in
which the keys of all sequences lie behind each other, and then the values. What it takes beyond the tokens is less than a
page a layer for the whole batch. A step of one token asks for memory once, and has the views of all layers made by one call
of PyTorch each; a layer has one call to queue then, which writes its keys and values.
"""

import torch
from transformers.cache_utils import Cache as _Cache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from . import kv, view
from .library import GlakeError


class _Shared:
    """The memory of all layers of a cache, and how many tokens it has."""

    def __init__(self, windows, tokens, slots, options):
        self.windows, self.tokens, self.slots, self.options = windows, tokens, slots, options
        self.cache, self.length = None, 0
        self.looking_back = []  # layers with a window
        self.shapes = None
        self.all = ()  # keys and values: [layers, slots, heads, tokens, size]
        self.both = None  # and the two, one behind the other, where they are alike
        self.step, self.put, self.seen = 0, (), ()  # a number of tokens, and where each layer has the last of them, and all

    def open(self, keys, values):
        shapes = [(x.shape[1], x.shape[3]) for x in (keys, values)]
        if self.cache and self.shapes != shapes:
            raise GlakeError(f"a layer has keys and values of {shapes}, and those before it {self.shapes}: "
                             "TransformersCache is for models whose layers are alike")
        if self.cache:
            return
        if not keys.is_cuda and not self.options.pop("on_host", False):
            raise GlakeError("TransformersCache is for tensors on a GPU")
        self.shapes, self.slots = shapes, self.slots or keys.shape[0]
        sizes = [self.slots * heads * size for heads, size in shapes]
        lanes = [kv.Lane(sum(sizes), keys.dtype, window=window) for window in self.windows]
        self.cache = kv.Cache(1, self.tokens, lanes, device=keys.device, **self.options)
        self.cache.new()
        self.all = [self._layers(begin, self.slots, *shape) for begin, shape in zip((0, sizes[0]), shapes)]
        self.both = self._layers(0, 2 * self.slots, *shapes[0]) if shapes[0] == shapes[1] else None

    def _layers(self, begin, *shape):
        """What lies at an element of a token, in all layers, which are equally far from each other."""
        first, last = self.cache._place(0), self.cache._place(len(self.windows) - 1)
        item, between = view.bytes_of(self.cache.lanes[0].dtype), max(len(self.windows) - 1, 1)
        apart = (last.base - first.base) // between
        return view.View(first.base + begin * item, [len(self.windows), self.tokens, *shape],
                         [apart // item, first.token // item, *view.rows(shape)], self.cache.lanes[0].dtype,
                         self.cache.device).tensor().permute(0, 2, 3, 1, 4)

    def have(self, length):
        """Memory for so many tokens, in all layers: the first of them asks for it."""
        if length > self.length:
            # what lies in front of the windows then goes in all layers with the first that asks
            for layer in self.looking_back if length > self.length + 1 else ():
                layer.save()
            self.cache.grow(0, length)
            self.length = length

    def steps(self, length):
        """One token more, in all layers."""
        self.have(length)
        self.put = self.both.narrow(3, length - 1, 1).unbind()
        self.seen = [lanes.narrow(3, 0, length).unbind() for lanes in self.all]
        self.step = length

    def cut(self, length):
        if length < self.length:
            self.cache.trim(0, length)
        self.length, self.step = min(self.length, length), 0


class _Layer:
    """What both kinds of layers have in common: tokens [first, length) of a batch, in two lanes."""

    def _begin(self, shared, number):
        self.shared, self.number, self.first, self.length, self.batch = shared, number, 0, 0, 0

    def lazy_initialization(self, key_states, value_states):
        super().lazy_initialization(key_states, value_states)
        self.shared.open(key_states, value_states)
        self.lanes = [lanes[self.number] for lanes in self.shared.all]
        self._batch(key_states.shape[0])

    def _batch(self, batch):
        if batch > self.shared.slots:
            raise GlakeError(f"a batch of {batch} in a cache of {self.shared.slots} sequences: "
                             f"TransformersCache(config, slots={batch})")
        self.batch, self.own = batch, [lane[:batch] for lane in self.lanes]
        self.shared.step = 0

    def _show(self):
        first, count = self.first, self.length - self.first
        keys, values = self.own
        self.keys, self.values = keys.narrow(2, first, count), values.narrow(2, first, count)

    def _put(self, key_states, value_states, skip=0):
        """New tokens behind those there are, but for the first of them."""
        begin, count = self.length + skip, key_states.shape[-2] - skip
        self.shared.have(begin + count)
        self.length = begin + count
        if skip:
            key_states, value_states = key_states[:, :, skip:], value_states[:, :, skip:]
        keys, values = self.own
        keys.narrow(2, begin, count).copy_(key_states)
        values.narrow(2, begin, count).copy_(value_states)

    def _select(self, indices, batch):
        """The sequences become those of the indices."""
        before = self.batch
        self._batch(batch)
        for lane in self.lanes:
            part = lane[:, :, self.first:self.length]
            part[:batch].copy_(part[:before].index_select(0, indices.to(lane.device)))
        self._show()

    def reorder_cache(self, beam_idx):
        if self.get_seq_length() > 0:
            self._select(beam_idx, self.batch)

    def batch_repeat_interleave(self, repeats):
        if self.get_seq_length() > 0:
            self._select(torch.arange(self.batch).repeat_interleave(repeats), self.batch * repeats)

    def batch_select_indices(self, indices):
        if self.get_seq_length() > 0:
            indices = torch.arange(self.batch, device=indices.device)[indices]
            self._select(indices, len(indices))

    def reset(self):
        if self.is_initialized:
            self.first = self.length = 0
            self.shared.cut(0)
            self._show()

    def offload(self):
        raise GlakeError("layers of TransformersCache are not offloaded: glake.spill or a tag does that")

    prefetch = offload


class FullLayer(_Layer, DynamicLayer):
    def __init__(self, shared, number):
        super().__init__()
        self._begin(shared, number)

    def update(self, key_states, value_states, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        shared, number = self.shared, self.number
        # a place for a result is for those who want no gradients
        if key_states.shape[2] != 1 or shared.both is None or self.batch < shared.slots or torch.is_grad_enabled():
            self._put(key_states, value_states)
            self._show()
            return self.keys, self.values
        if shared.step != self.length + 1:
            shared.steps(self.length + 1)
        self.length += 1
        torch.cat((key_states, value_states), out=shared.put[number])
        keys, values = shared.seen
        self.keys, self.values = keys[number], values[number]
        return self.keys, self.values

    def get_seq_length(self):
        return self.length

    def crop(self, tokens_to_remove):
        if tokens_to_remove > 0:  # as it was before: what is to stay
            tokens_to_remove = min(tokens_to_remove - self.length, 0)
        if tokens_to_remove and self.is_initialized:
            self.length = max(self.length + tokens_to_remove, 0)
            self.shared.cut(self.length)
            self._show()


class WindowLayer(_Layer, DynamicSlidingWindowLayer):
    """The last sliding_window - 1 tokens stay in place for those to come; a call with more new tokens than a window
    sees them as they were given."""

    def __init__(self, shared, number, sliding_window):
        super().__init__(sliding_window=sliding_window)
        self._begin(shared, number)
        self.old = None
        shared.looking_back.append(self)

    def save(self):
        """Its tokens, before memory of some of them goes."""
        if self.length > self.first:
            self.old = [lane.narrow(2, self.first, self.length - self.first).clone() for lane in self.own]

    def activate_past_recording(self):
        raise GlakeError("TransformersCache keeps no more of a window than it needs: use DynamicCache where "
                         "tokens are taken back")

    def update(self, key_states, value_states, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        new, has = key_states.shape[-2], self.length - self.first
        full = None
        self.shared.have(self.length + new)
        self.cumulative_length += new
        old, self.old = self.old, None
        if has + new > self.sliding_window:  # more than there is memory for
            if has and old is None:  # one token more: none of them has gone
                old = [lane.narrow(2, self.first, has) for lane in self.own]
            full = [states if not has else torch.cat([kept, states], dim=-2)
                    for kept, states in zip(old or (None, None), (key_states, value_states))]
        self._put(key_states, value_states, max(new - self.sliding_window, 0))
        if full is None:
            self._show()
            full = self.keys, self.values
        self.first = max(self.length - self.sliding_window + 1, self.first, 0)
        self._show()
        return full[0], full[1]

    def get_seq_length(self):
        return self.cumulative_length

    def reset(self):
        super().reset()
        self.cumulative_length = 0

    def crop(self, tokens_to_remove):
        if tokens_to_remove > 0:
            tokens_to_remove = min(tokens_to_remove - self.length, 0)
        if not tokens_to_remove or not self.is_initialized:
            return
        if self.first:
            raise GlakeError("what lies in front of a window is gone: tokens cannot be taken back")
        self.length = self.cumulative_length = max(self.length + tokens_to_remove, 0)
        self.shared.cut(self.length)
        self._show()


class TransformersCache(_Cache):
    def __init__(self, config, *, tokens=None, slots=None, token_front=False, ahead=0, limit=0, on_host=False):
        config = config.get_text_config(decoder=True)
        count = config.num_hidden_layers
        kinds = list(getattr(config, "layer_types", None) or ())
        window = getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", None)
        if not kinds:
            kinds = ["sliding_attention" if window else "full_attention"] * count
        kinds = kinds[:count - (getattr(config, "num_kv_shared_layers", None) or 0)]
        known = {"full_attention": 0, "sliding_attention": window, "chunked_attention": window}
        other = set(kinds) - set(known)
        if other:
            raise GlakeError(f"TransformersCache has no layers of the kind {', '.join(sorted(other))}")
        windows = [known[kind] for kind in kinds]
        if token_front and any(windows):
            raise GlakeError("token_front is for models without sliding windows")
        options = {"token_front": token_front, "ahead": ahead, "limit": limit}
        if on_host:
            options["on_host"] = True
        self.shared = _Shared(windows, tokens or config.max_position_embeddings, slots, options)
        super().__init__(layers=[WindowLayer(self.shared, i, w) if w else FullLayer(self.shared, i)
                                 for i, w in enumerate(windows)])

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        return self.layers[layer_idx].update(key_states, value_states)

    def figures(self):
        """Those of the memory; None before the first call."""
        return self.shared.cache and self.shared.cache.figures()

    def close(self):
        """Gives all memory back; the cache must not be used any more."""
        if self.shared.cache:
            for layer in self.layers:
                layer.keys = layer.values = layer.lanes = layer.own = None
            self.shared.all = self.shared.put = self.shared.seen = ()
            self.shared.both = None
            self.shared.cache.close()
