# SPDX-License-Identifier: LGPL-2.1-or-later
"""The checks of spilled.py of what autograd saves."""

import gc
import random
import threading

import tap
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import glake
from spilled_fake import SAVED, WIDE, Fake, Nothing, alike, batch, bits, both, train


def plainly():
    first = both("plainly")
    tap.ok(first["spilled"] > 20 and first["fetched_ahead"] > 10 * first["fetched_late"],
           "most of it is fetched ahead", first)
    tap.equal(first["spilled"], first["fetched_ahead"] + first["fetched_late"], "all of it once")
    tap.ok({"parameter", "small"} <= set(first["skipped"]), "what stays is told by reason", first)
    both("entered again", again=True, check=lambda f: f["spilled"] == 2 * first["spilled"])
    both("nothing ahead", ahead=0,
         check=lambda f: f["fetched_late"] and not f["fetched_ahead"])
    both("a narrow window", ahead=1, check=lambda f: f["fetched_ahead"])
    half = both("a share", cap=0.5)
    tap.ok(0.4 < half["spilled_bytes"] / first["spilled_bytes"] <= 0.5, "is that share", half)
    few = both("a cap", cap=4 << 20)
    tap.ok(0 < few["peak_away"] <= 4 << 20 and few["skipped"]["cap"], "is a cap", few)
    Fake.anew()
    none = SAVED(cap=0)
    train(lambda: none, steps=1)
    tap.equal([none.figures["spilled"], Fake.spills], [0, 0], "a cap of nothing moves nothing")
    big = both("large ones alone", minimum=1 << 20)
    tap.ok(big["spilled"] < first["spilled"], "are fewer", big)


def before_the_first():
    """What stayed is asked for first, and the room that it leaves is used."""
    def deep(x):
        for _ in range(40):
            x = x.sin()
        return x.sum()
    x = torch.randn(1024, WIDE, requires_grad=True)
    deep(x).backward()
    want, x.grad = x.grad, None
    Fake.anew()
    saved = SAVED(minimum=0, cap=20 * x.nbytes)
    with saved:
        loss = deep(x)
    loss.backward()
    tap.ok(saved.figures["spilled"] == 20 and saved.figures["skipped"]["cap"] > 10,
           "the first half of a pass goes, and the rest stays", saved.figures)
    tap.equal(saved.figures["fetched_late"], 0, "nothing of it is waited for from its beginning")
    tap.ok(torch.equal(x.grad, want), "and all have their contents")


def storages():
    """One storage, many views; and those that somebody else holds."""
    Fake.anew()
    with SAVED(minimum=0) as saved:
        x = torch.randn(512, WIDE, requires_grad=True)
        y = x * 1.5
        a, b, c = y[:100].sin(), y[200:300].sin(), y.t().sin()
        loss = a.sum() + b.sum() + c.sum()
        tap.equal(saved.figures["spilled"], 0, "what the program holds stays")
        del y, a, b, c
        w = torch.randn(600, WIDE, requires_grad=True)
        w.exp()
        tap.equal([saved.figures["spilled"], saved.figures["spilled_bytes"]], [1, 512 * WIDE * 4],
                  "three views of a storage go once")
    loss.backward()
    want = 1.5 * (x.detach() * 1.5).cos()
    want[:100] += want[:100].clone()
    want[200:300] += want[200:300].clone()
    tap.ok(torch.equal(x.grad, want), "and all have their contents")
    Fake.anew()
    with SAVED(minimum=0) as saved:
        y = x * 2
        held = y.untyped_storage()
        loss = y.sin().sum()
        del y
        for _ in range(4):
            w.exp()
        tap.equal(saved.figures["spilled"], 0, "a storage that is held as such stays")
        del held
        w.exp()
        tap.equal(saved.figures["spilled"], 1, "until it is not")
    del loss
    gc.collect()
    tap.equal([saved.figures["away_bytes"], saved.figures["dropped"]], [0, 1],
              "a graph that is dropped is counted")
    Fake.anew()
    with SAVED(minimum=0) as saved:
        y = x.exp()  # saves its result
        me = torch.utils.weak.WeakTensorKeyDictionary()
        me[y] = 1
        del y
        tap.equal(len(me), 0, "a result that is saved is no cycle")
        weight = nn.Linear(WIDE, WIDE).weight
        rows = (torch.randn(2, 4) @ weight.view(4, -1)).sum()
        w.exp()
        w.exp()
        tap.equal(saved.figures["spilled"], 0, "a view of a parameter stays")
    rows.backward()
    Fake.anew()
    with SAVED(minimum=0) as saved:
        y = x * 2
        Fake.foreign.add(y.untyped_storage().data_ptr())
        z = y.sin()
        del y
        Fake.refuse = 1
        q = (x * 3).sin()
        w.exp()
        tap.equal([saved.figures["skipped"].get(k) for k in ("foreign", "in use")], [1, 1],
                  "what cannot move stays", )
    Fake.refuse = 0
    (z + q).sum().backward()


def trouble():
    Fake.anew()
    x = torch.randn(512, WIDE, requires_grad=True)
    w = torch.randn(512, WIDE)
    saved = SAVED(minimum=0)
    with saved:
        loss = (x * 2).sin().sum()
        (x * 3).exp()
    tap.equal(len(Fake.away), 1, "one is away")
    Fake.room = 0
    try:
        loss.backward(retain_graph=True)
        tap.ok(False, "no memory for what is asked for")
    except torch.cuda.OutOfMemoryError as error:
        tap.has(str(error), "bytes", "no memory for what is asked for is PyTorch's error")
    Fake.room = None
    loss.backward()
    tap.ok(torch.equal(x.grad, 2 * (x.detach() * 2).cos()), "and the next pass has its contents")
    Fake.anew()
    with saved:
        y = x * 2
        z = y.sin()
        y.add_(1)
    try:
        z.sum().backward()
        tap.ok(False, "a write in place is told")
    except RuntimeError as error:
        tap.has(str(error), "modified by an inplace operation", "a write in place is told")
    del y, z
    Fake.anew()
    x.grad = None
    with saved:
        loss = ((x * 2).sin() * w).sum()
        (x * 1).exp()
        for _ in range(2):
            loss.backward(retain_graph=True)
    tap.ok(torch.equal(x.grad, 2 * (2 * ((x.detach() * 2).cos() * w))),
           "a pass that keeps its graph, twice", (x.grad - 4 * ((x.detach() * 2).cos() * w)).abs().max())
    tap.equal(Fake.fetches, Fake.spills - len(Fake.away), "what was fetched stays")
    del loss
    Fake.anew()
    try:
        with saved:
            z = (x * 2).sin()
            (x * 3).exp()
            raise KeyError("the program's own")
    except KeyError:
        pass
    tap.ok(saved._active == [] and (x * 2).sin().grad_fn._saved_self is not None,
           "an error in the forward pass leaves no hooks behind")
    z.sum().backward()

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, _):
            raise KeyError("half way")
    Fake.anew()
    with saved:
        z = Fails.apply((x * 2).sin()) * w
        (x * 3).exp()
    try:
        z.sum().backward()
    except KeyError:
        pass
    del z
    gc.collect()
    tap.equal([saved.figures["away_bytes"], saved._fetched], [0, 0],
              "an error in the backward pass leaves nothing away")
    Fake.anew()
    saved = SAVED(minimum=0)
    with saved:
        Fake.captured = True
        loss = (x * 2).sin().sum()
        (x * 3).exp()
        Fake.captured = False
        w.exp()
    tap.equal([Fake.spills, saved.figures["skipped"]["captured"]], [0, 2],
              "nothing of a capture moves")
    del loss
    for named in ({"cap": 1.5}, {"cap": -1}, {"ahead": -1}, {"minimum": -1}):
        try:
            SAVED(**named)
            tap.ok(False, f"{named} is refused")
        except glake.GlakeError as error:
            tap.has(str(error), next(iter(named)), f"{named} is refused")
    Fake.anew()
    saved = SAVED(minimum=0)
    with saved:
        kept = [(x * i).sin() for i in range(40)]  # results are held, inputs are not
    tap.ok(Fake.spills >= 38, "many that wait are asked about in turn", Fake.spills)
    Fake.room = 2
    try:
        sum(kept).sum().backward()
    except torch.cuda.OutOfMemoryError:
        pass
    tap.ok(saved.figures["ahead_refused"], "what cannot come ahead may come later")
    Fake.room = None
    del kept


def passes():
    """Other shapes of a step."""
    def accumulate(one, number, make):
        total = 0
        for part in range(3):
            with make():
                loss = one(batch(10 * number + part)).square().mean()
            loss.backward()
            total = total + loss.detach()
        return total
    both("gradients of three passes", step=accumulate)

    def crossed(one, number, make):
        with make():
            first = one(batch(number)).square().mean()
            second = one(batch(number + 50)).tanh().mean()
            (first if number % 2 else second).backward()
        (second if number % 2 else first).backward()
        return first + second
    both("two graphs, backward in any order", step=crossed)

    def within(one, number, make):
        with make():
            loss = one(batch(number)).square().mean()
            loss.backward()
        return loss
    both("backward inside", step=within)

    for reentrant in (False, True):
        def recomputed(one, number, make, reentrant=reentrant):
            x = batch(number).requires_grad_()
            with make():
                for i, layer in enumerate(one):
                    x = checkpoint(layer, x, use_reentrant=reentrant) if i % 2 else layer(x)
                loss = x.square().mean()
            loss.backward()
            return loss
        both(f"checkpoints inside, use_reentrant={reentrant}", step=recomputed)

    def nested(one, number, make):
        with make():
            x = one[0](batch(number))
            with torch.autograd.graph.save_on_cpu():
                x = one[1](x)
            with make():
                x = one[2](x)
            for layer in one[3:]:
                x = layer(x)
            loss = x.square().mean()
        loss.backward()
        return loss
    both("one inside of another", step=nested)
    both("the same inside of itself", step=nested, again=True)

    def twice(one, number, make):
        x = batch(number).requires_grad_()
        exact = nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH)
        with exact, make():
            y = one[0](x).tanh()
            gradient, = torch.autograd.grad(y.square().mean(), x, create_graph=True)
            y = y + gradient
            for layer in one[1:]:
                y = layer(y)
            loss = y.square().mean() + gradient.square().sum()
        loss.backward()
        return loss
    both("a gradient of a gradient", step=twice)

    def threads(one, number, make):
        saved, losses = make(), [None, None]

        def run(part):
            with saved:
                losses[part] = one(batch(2 * number + part)).square().mean()
        workers = [threading.Thread(target=run, args=(part,)) for part in range(2)]
        for worker in workers:
            worker.start()
            worker.join()
        for loss in losses:
            loss.backward()
        return sum(losses)
    both("two threads", step=threads)

    def half(one, number, make):
        with make(), torch.autocast("cpu", dtype=torch.bfloat16):
            loss = one(batch(number)).float().square().mean()
        loss.backward()
        return loss
    both("autocast", step=half)

    def compiled(one, number, make):
        function = torch.compile(one[1], backend="aot_eager")
        with make():
            loss = one[2:](function(one[0](batch(number)))).square().mean()
        loss.backward()
        return loss
    both("a compiled part", step=compiled)


def at_random():
    """Graphs of any shape: what is read is never away."""
    wrong, moved = 0, 0
    for seed in range(16):
        Fake.anew()
        results = []
        for under in (Nothing(), SAVED(minimum=0, ahead=random.Random(seed).choice((0, 1 << 20)))):
            draw = random.Random(seed)
            leaves = [torch.randn(300, WIDE, generator=torch.Generator().manual_seed(i))
                      .requires_grad_() for i in range(3)]
            for _ in range(2):
                pool = [leaf * 1 for leaf in leaves]
                for _ in range(60):
                    with under if draw.random() < 0.8 else Nothing():
                        a, b = draw.choice(pool), draw.choice(pool)
                        pool.append(draw.choice((
                            lambda a, b: a + b, lambda a, b: (a * b).tanh(), lambda a, b: a.exp().tanh(),
                            lambda a, b: a[:150].sigmoid().mean() * b,
                            lambda a, b: a.t().contiguous().t() * b.sin(),
                            lambda a, b: a.detach() * b, lambda a, b: torch.relu_(a - b)))(a, b))
                    if len(pool) > 6:
                        pool.pop(draw.randrange(len(pool)))
                    if draw.random() < 0.1:
                        draw.choice(pool).sum().backward(retain_graph=True)
                sum(p.mean() for p in pool).backward()
            results.append(bits(leaf.grad for leaf in leaves if leaf.grad is not None))
        moved += Fake.spills
        wrong += not alike(*results)
    tap.ok(not wrong and moved > 150, "graphs at random: none differs", wrong, moved)


def distributed():
    """A tensor of many processes: its part that lies here moves."""
    import torch.distributed as dist
    if not dist.is_available() or not dist.is_gloo_available():
        tap.skip("distributed tensors", "this PyTorch has no gloo")
        return
    from torch.distributed.device_mesh import init_device_mesh
    try:
        from torch.distributed.tensor import Shard, distribute_tensor
    except ImportError:  # its name before 2.5
        from torch.distributed._tensor import Shard, distribute_tensor
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    mesh, results = init_device_mesh("cpu", (1,)), []
    Fake.anew()
    for under in (Nothing(), SAVED(minimum=0)):
        x = distribute_tensor(batch().flatten(0, 1), mesh, [Shard(0)]).requires_grad_()
        with under:
            y = x
            for _ in range(8):
                y = (y * 2).sin() + y
            loss = y.sum()
        del y
        loss.backward()
        results.append(bits([x.grad.to_local()]))
    dist.destroy_process_group()
    tap.ok(alike(*results) and under.figures["spilled"] >= 6, "distributed tensors",
           under.figures)


def main():
    torch.set_num_threads(1)
    tap.note(f"PyTorch {torch.__version__}")
    for part in (plainly, before_the_first, storages, trouble, passes, at_random, distributed):
        part()
    tap.done()


if __name__ == "__main__":
    main()
