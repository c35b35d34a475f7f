# SPDX-License-Identifier: LGPL-2.1-or-later
"""Who moves storages in spilled.py's checks, and what is trained there, with and without."""

import gc
import threading

import tap
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from glake import spilled

WIDE = 512  # a tensor of 256 such rows has 512 KiB
SAVED = spilled.spilled_activations


class Fake:
    """Moves storages of the CPU. What is away is overwritten, and watched for those who write there."""
    away = {}  # by address: contents, and whose
    foreign = set()
    refuse = fetches = spills = most = least = 0
    room = None
    captured = False

    @classmethod
    def bytes_of(cls, storage):
        return torch.tensor([], dtype=torch.uint8).set_(storage)

    def why_not(self, tensor, storage):
        return "foreign" if storage.data_ptr() in self.foreign else None

    def stream(self, tensor):
        return threading.get_ident() if Fake.captured == "by thread" else 0

    def capturing(self):
        return Fake.captured is True

    def spill(self, tensor, storage, streams):
        if Fake.refuse:
            return "in use"
        self.forget()
        assert storage.data_ptr() not in Fake.away, "it goes twice"
        view = self.bytes_of(storage)
        Fake.away[storage.data_ptr()] = view.clone(), StorageWeakRef(storage)
        view.fill_(0xff)  # not a number, whatever it is read as
        Fake.spills += 1
        Fake.most = max(Fake.most, len(Fake.away))
        return None

    def fetch(self, tensor, storage):
        if Fake.room is not None and Fake.fetches >= Fake.room:
            return None
        view, (kept, _) = self.bytes_of(storage), Fake.away.pop(storage.data_ptr())
        assert bool((view == 0xff).all()), "somebody has written to what was away"
        view.copy_(kept)
        Fake.fetches += 1
        Fake.least = min(Fake.least, len(Fake.away))
        return storage.data_ptr()

    def arrive(self, tensor, arrival):
        assert arrival == spilled.local(tensor).untyped_storage().data_ptr()
        assert arrival not in Fake.away

    def no_memory(self, size):
        return torch.cuda.OutOfMemoryError(f"no {size} bytes")

    @classmethod
    def forget(cls):
        """What was freed while it was away."""
        cls.away = {at: row for at, row in cls.away.items() if not row[1].expired()}

    @classmethod
    def anew(cls):
        cls.away, cls.foreign = {}, set()
        cls.refuse = cls.fetches = cls.spills = cls.most = 0
        cls.room, cls.captured = None, False


spilled.Mover = Fake


class Block(nn.Module):
    """Of a transformer: residuals, views of one projection, and an activation that saves its input."""

    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)
        self.qkv, self.out = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)
        self.up, self.down = nn.Linear(WIDE, 2 * WIDE), nn.Linear(2 * WIDE, WIDE)

    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).view(4, 64, 3, 4, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(torch.tanh(self.up(self.between(x))))


def model(layers=4):
    torch.manual_seed(3)
    return nn.Sequential(*[Block() for _ in range(layers)], nn.Linear(WIDE, 64))


def batch(seed=5):
    return torch.randn(4, 64, WIDE, generator=torch.Generator().manual_seed(seed))


def bits(tensors):
    return [t.detach().clone().reshape(-1).view(torch.uint8) for t in tensors]


def alike(some, others):
    return len(some) == len(others) and all(map(torch.equal, some, others))


def train(make, steps=2, step=None):
    """Losses, gradients and weights of some steps; make() is what the forward pass runs under."""
    one, losses = model(), []
    optimizer = torch.optim.AdamW(one.parameters(), lr=1e-3)
    for number in range(steps):
        if step:
            loss = step(one, number, make)
        else:
            with make():
                loss = one(batch(number)).square().mean()
            loss.backward()
        losses.append(loss.detach().clone())
        gradients = bits(p.grad for p in one.parameters())
        optimizer.step()
        optimizer.zero_grad()
    return bits(losses) + gradients + bits(one.parameters())


class Nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def both(what, step=None, check=None, again=False, **options):
    """The same with and without."""
    Fake.anew()
    options.setdefault("minimum", 0)
    want = train(Nothing, step=step)
    made = []

    def make():
        if not (again and made):
            made.append(SAVED(**options))
        return made[-1]
    got = train(make, step=step)
    gc.collect()
    figures = made[-1].figures
    tap.ok(alike(got, want), f"{what}: losses, gradients and weights are the same to the last bit")
    tap.ok(figures["spilled"] and check(figures) if check else figures["spilled"],
           f"{what}: contents went away", figures)
    tap.equal([figures["away_bytes"], made[-1]._fetched], [0, 0], f"{what}: and nothing is left")
    return figures
