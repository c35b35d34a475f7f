# SPDX-License-Identifier: LGPL-2.1-or-later
"""
A Llama of random weights. It knows nothing of caches: forward() takes a row for each token, of whichever sequences
they are, and asks `attend` for what a layer's queries get from its keys and values.

Attention kernels of different caches add up in different orders. So that a token depends on no such thing where it can
be helped, the last product is made in float32, and the noise of a sample is a function of its seed and of the place of
the token, whatever else is in the batch.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    inner: int
    heads: int
    groups: int  # heads of keys and values
    size: int  # of a head
    vocabulary: int = 32000


SHAPES = {
    "tiny": Shape(4, 64, 128, 8, 4, 128, 512),
    "deep": Shape(16, 64, 128, 2, 2, 128, 512),
    "small": Shape(4, 1024, 2816, 8, 4, 128),
    "1b": Shape(16, 2048, 8192, 32, 8, 64),
    "7b": Shape(32, 4096, 11008, 32, 8, 128),
    "7b-ungrouped": Shape(32, 4096, 11008, 32, 32, 128),
}


class Llama:
    def __init__(self, shape, device, dtype, seed=1, most=4096):
        self.shape, self.device, self.dtype = shape, torch.device(device), dtype
        random = torch.Generator(self.device).manual_seed(seed)

        def weight(rows, columns, scale=1.0):
            values = torch.empty(rows, columns, device=self.device, dtype=dtype)
            return values.normal_(0, scale / rows**0.5, generator=random)

        wide = (shape.heads + 2 * shape.groups) * shape.size
        thin = 1 / (2 * shape.layers) ** 0.5  # so that the sum over layers keeps its size
        self.layers = [(weight(shape.hidden, wide), weight(shape.heads * shape.size, shape.hidden, thin),
                        weight(shape.hidden, 2 * shape.inner), weight(shape.inner, shape.hidden, thin))
                       for _ in range(shape.layers)]
        self.words = weight(shape.hidden, shape.vocabulary, shape.hidden**0.5).t().contiguous()
        self.head = weight(shape.hidden, shape.vocabulary)
        self.ones = torch.ones(shape.hidden, device=self.device, dtype=dtype)
        turns = 10000.0 ** -(torch.arange(0, shape.size, 2, device=self.device, dtype=torch.float64) / shape.size)
        turns = torch.arange(most + 1, device=self.device)[:, None] * turns
        self.turns = torch.stack((turns.cos(), turns.sin())).to(dtype)[:, :, None]  # [2, most, 1, size / 2]

    def norm(self, x):
        return F.rms_norm(x, self.ones.shape, self.ones, 1e-5)

    def forward(self, tokens, positions, attend):
        """[rows] of tokens and of their positions; attend(layer, queries, keys, values), each [rows, heads, size]."""
        s, rows = self.shape, tokens.shape[0]
        cos, sin = self.turns[:, positions]
        x = self.words[tokens]
        for number, (qkv, out, gate, down) in enumerate(self.layers):
            heads = (self.norm(x) @ qkv).view(rows, -1, s.size)
            turned = torch.empty(rows, s.heads + s.groups, s.size, device=x.device, dtype=x.dtype)
            for half, other, sign in ((0, 1, -1), (1, 0, 1)):
                mine, its = (heads[:, :s.heads + s.groups].unflatten(-1, (2, -1))[:, :, i] for i in (half, other))
                part = turned.unflatten(-1, (2, -1))[:, :, half]
                torch.mul(mine, cos, out=part).addcmul_(its, sin, value=sign)
            seen = attend(number, turned[:, :s.heads], turned[:, s.heads:], heads[:, s.heads + s.groups:])
            x = torch.addmm(x, seen.reshape(rows, -1), out)
            wide, through = (self.norm(x) @ gate).chunk(2, -1)
            x = torch.addmm(x, F.silu(wide).mul_(through), down)
        return x

    def logits(self, x):
        x = self.norm(x)
        if x.is_cuda and x.dtype in (torch.bfloat16, torch.float16):
            return torch.mm(x, self.head, out_dtype=torch.float32)
        return x @ self.head


def _mixed(x):
    """32 bits that look like no others: each bit of x counts for all of them."""
    for factor in (0x7feb352d, 0x2c1b3c6d):
        x = ((x ^ (x >> 16)) * factor) & 0xffffffff
    return x ^ (x >> 15)


def choose(logits, seeds, positions, heat, best=64):
    """
    The next token of each row, greedy where heat is 0, else drawn from the best ones: that with the most of logit and
    Gumbel noise. And how far the next best was behind it, which is what rounding would have to make up for.
    """
    values, tokens = logits.topk(best)
    noise = _mixed(_mixed(seeds * 0x10001 + positions)[:, None] + tokens)
    noise = -torch.log(-torch.log(((noise >> 9).to(values.dtype) + 0.5) / 2**23))  # exact in float32
    first, at = (values + heat[:, None].to(values.dtype) * noise).topk(2)
    return tokens.gather(1, at[:, :1])[:, 0], first[:, 0] - first[:, 1]
