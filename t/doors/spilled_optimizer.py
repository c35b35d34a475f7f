# SPDX-License-Identifier: LGPL-2.1-or-later
"""The checks of spilled.py of the states of optimizers."""

import copy
import gc

import tap
import torch
from torch import nn

import glake
from spilled_fake import WIDE, Fake, alike, batch, bits, both, model

OPTIMIZER = glake.spilled_optimizer


def scheduled():
    """Schedulers before and after, hooks of the program's own, a closure, and an early end."""
    results = []
    for chunk in (None, 1 << 20):
        Fake.anew()
        one = model(2)
        optimizer = torch.optim.AdamW(one.parameters(), lr=1e-3)
        first = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        calls = []
        optimizer.register_step_post_hook(lambda *_: calls.append(1))
        spilled = chunk and OPTIMIZER(optimizer, minimum=0, chunk=chunk)
        second = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

        def closure():
            optimizer.zero_grad()
            loss = one(batch(len(calls))).square().mean()
            loss.backward()
            return loss
        losses = []
        for number in range(4):
            losses.append(optimizer.step(closure))
            first.step()
            second.step()
            if spilled and number == 2:
                spilled.close()
        results.append(bits(one.parameters()) + bits(losses))
        assert len(calls) == 4, calls
    tap.ok(alike(*results) and not Fake.away, "in parts, with schedulers, hooks and closures")


def optimizers():
    def run(under, steps=5, make=torch.optim.AdamW, between=None, **options):
        Fake.anew()
        one = model(2)
        optimizer = make(one.parameters(), lr=1e-3, **options)
        spilled = under(optimizer)
        for number in range(steps):
            loss = one(batch(number)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if between:
                optimizer = between(one, optimizer, number, spilled) or optimizer
        if spilled:
            spilled.close()
        return bits(one.parameters()) + bits(
            s for state in optimizer.state.values() for s in state.values()), spilled

    def same(what, under=lambda o: OPTIMIZER(o, minimum=0), **options):
        want, _ = run(lambda _: None, **options)
        got, spilled = run(under, **options)
        figures = spilled.figures
        tap.ok(alike(got, want), f"{what}: weights and states are the same to the last bit")
        tap.ok(figures["spilled"] > 8 and figures["away_bytes"] == 0 and not Fake.away,
               f"{what}: states went and came", figures, len(Fake.away))
        return figures
    same("AdamW")
    same("AdamW, one by one", foreach=False)
    same("SGD with momentum", make=torch.optim.SGD, momentum=0.9)
    early = same("as gradients are there", under=lambda o: OPTIMIZER(o, minimum=0, early=True))
    tap.equal(early["fetched_ahead_bytes"], 4 * early["fetched_bytes"] // 5,
              "all of them, but for the last", )

    parts = same("in parts", under=lambda o: OPTIMIZER(o, minimum=0, chunk=4 << 20))
    tap.ok(parts["fetched_ahead_bytes"] > parts["fetched_bytes"] // 2, "which come ahead", parts)
    least = []
    for chunk in (None, 4 << 20):
        def watched(one, optimizer, number, spilled):
            Fake.least = len(Fake.away)
            if number == 3:
                one(batch()).mean().backward()
                optimizer.step()
                least.append(Fake.least)
        run(lambda o, chunk=chunk: OPTIMIZER(o, minimum=0, chunk=chunk), between=watched)
    tap.ok(least[0] == 0 and least[1] >= 8, "while others are away", least)
    same("in parts, early", under=lambda o: OPTIMIZER(o, minimum=0, chunk=1, early=True))
    same("in parts, RAdam", under=lambda o: OPTIMIZER(o, minimum=0, chunk=1 << 20),
         make=torch.optim.RAdam)
    try:
        OPTIMIZER(torch.optim.LBFGS([nn.Parameter(torch.ones(4))]), chunk=1 << 20)
        tap.ok(False, "an optimizer of all at once is refused")
    except glake.GlakeError as error:
        tap.has(str(error), "LBFGS", "an optimizer of all at once is refused")
    scheduled()
    kept = []

    def stored(one, optimizer, number, spilled):
        if number == 1:
            kept.append(optimizer.state_dict())
        if number == 2 and spilled:
            tap.ok(not any(torch.isnan(s).any() for state in kept[0]["state"].values()
                           for s in state.values()), "what state_dict() gave stays here")
        if number == 2:
            copied = copy.deepcopy(kept.pop())
            for state in copied["state"].values():
                state["step"].fill_(number + 1)
            optimizer.load_state_dict(copied)
        if number == 3:
            extra = nn.Parameter(torch.ones(300, WIDE))
            one.register_parameter("extra", extra)
            extra.grad = torch.ones_like(extra)
            optimizer.add_param_group({"params": [extra], "lr": 0.5})
        optimizer.zero_grad(set_to_none=True)
    figures = same("state_dict(), load_state_dict(), add_param_group(), zero_grad()", between=stored)
    tap.ok(figures["skipped"]["held"], "and is counted", figures)

    def failing(one, optimizer, number, spilled):
        if number == 1:
            group = optimizer.param_groups[0]
            group["eps"] = "no number"
            one[2].weight.grad = torch.ones_like(one[2].weight)
            try:
                optimizer.step()
            except TypeError:
                pass
            group["eps"] = 1e-8
            optimizer.zero_grad()
    Fake.anew()
    same("a step that fails", between=failing)

    def captured(one, optimizer, number, spilled):
        Fake.captured = number == 1
        if number == 1 and spilled:
            spilled.fetch()
            spilled.spill()
            tap.ok(not Fake.away, "nothing goes while a graph is captured, and after")
        Fake.captured = False
    run(lambda o: OPTIMIZER(o, minimum=0), between=captured)

    class Bare:
        pass
    try:
        OPTIMIZER(Bare())
        tap.ok(False, "what is no optimizer is refused")
    except glake.GlakeError as error:
        tap.has(str(error), "Bare has no", "what is no optimizer is refused")
    one = model(2)
    optimizer = torch.optim.AdamW(one.parameters())
    spilled = OPTIMIZER(optimizer, minimum=0)
    one(batch()).mean().backward()
    optimizer.step()
    Fake.room = Fake.fetches
    try:
        optimizer.step()
        tap.ok(False, "no memory for states")
    except torch.cuda.OutOfMemoryError as error:
        tap.has(str(error), "bytes", "no memory for states is PyTorch's error")
    Fake.room = None
    del optimizer
    gc.collect()
    tap.equal(spilled.figures["away_bytes"], 0, "states that are dropped are nobody's")

    def step(one, number, make):
        with make():
            loss = one(batch(number)).square().mean()
        loss.backward()
        return loss
    both("beside it", step=step)


def main():
    torch.set_num_threads(1)
    tap.note(f"PyTorch {torch.__version__}")
    optimizers()
    tap.done()


if __name__ == "__main__":
    main()
