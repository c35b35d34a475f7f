#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Real jobs of PyTorch on one GPU, with each allocator that it can have, in one table.

    torch_jobs.py [--jobs A,B] [--allocators X,Y] [--steps N] [--rounds N] [--again] [--json FILE]

Models have random weights; nothing is loaded from anywhere. Every row is a process of its own:
one program for each allocator imports PyTorch and waits, and every job is a fork of it from
before CUDA started (--fresh: a new program for each row). `rate` is of the steps after the first
four, in sequences, images or tokens a second. `live` is what the job's tensors took at their
peak, `reserved` what the allocator had of the GPU for that, `device` what the GPU as a whole had
less at the end of a step, at most. Losses and tokens of all steps are compared to the last bit
with those of the default allocator; --again runs that twice, to tell jobs that repeat themselves.

    torch_jobs.py --fit GIB [--jobs A,B] ...

finds instead the largest batch with which a job runs when it may have so much of the GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
ALLOCATORS = {
    "default": "",
    "expandable": "expandable_segments:True",
    "cudaMallocAsync": "backend:cudaMallocAsync",
    "glake": "",
}
WARM = 4
GIB = 1 << 30


def opt(torch, size, tiny):
    """An OPT of that size as its paper has it."""
    from transformers import OPTConfig, OPTForCausalLM

    hidden, layers, heads = {"1.3b": (2048, 24, 32), "13b": (5120, 40, 40)}[size]
    if tiny:
        hidden, layers, heads = 64, 2, 4
    config = OPTConfig(
        vocab_size=512 if tiny else 50272, hidden_size=hidden, num_hidden_layers=layers,
        ffn_dim=4 * hidden, num_attention_heads=heads, word_embed_proj_dim=hidden,
        max_position_embeddings=2048, dropout=0.0, layerdrop=0.0, do_layer_norm_before=True,
        use_cache=False)
    return OPTForCausalLM(config)


def fine_tune(torch, args, batch, lengths, recompute=False):
    """All weights of OPT-1.3B by AdamW, in bfloat16."""
    model = opt(torch, "1.3b", args.tiny)
    if recompute:
        model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    return trainer(torch, args, model, optimizer, batch, lengths), batch


def repeatable(torch, args):
    """Kernels of attention that give the same every time; the first choice on Hopper does not."""
    kernels = torch.nn.attention.SDPBackend
    return [kernels.FLASH_ATTENTION] + [kernels.MATH] * args.tiny


def trainer(torch, args, model, optimizer, batch, lengths):
    vocabulary = model.config.vocab_size
    attention = repeatable(torch, args)

    def step(number):
        ids = torch.randint(vocabulary, (batch, lengths[number % len(lengths)]))
        with torch.nn.attention.sdpa_kernel(attention):
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss
    return step


def full(torch, args):
    return fine_tune(torch, args, args.batch or 16, [512])


def lengths_of(torch, args):
    generator = torch.Generator(device="cpu").manual_seed(7)
    most = 64 if args.tiny else 2048
    return (torch.randint(most // 16, most // 8, (64,), generator=generator, device="cpu") * 8
            ).tolist()


def varying(torch, args):
    return fine_tune(torch, args, args.batch or 8, lengths_of(torch, args))


def recompute(torch, args):
    return fine_tune(torch, args, args.batch or 32, [512], recompute=True)


def lora(torch, args):
    """Matrices of rank 16 beside the queries and values of OPT-13B, and varying lengths."""
    class Lora(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner.requires_grad_(False)
            self.down = torch.nn.Linear(inner.in_features, 16, bias=False)
            self.up = torch.nn.Linear(16, inner.out_features, bias=False)
            torch.nn.init.zeros_(self.up.weight)

        def forward(self, x):
            return self.inner(x) + self.up(self.down(x))

    model = opt(torch, "13b", args.tiny).requires_grad_(False)
    for layer in model.model.decoder.layers:
        layer.self_attn.q_proj = Lora(layer.self_attn.q_proj)
        layer.self_attn.v_proj = Lora(layer.self_attn.v_proj)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    weights = [w for w in model.parameters() if w.requires_grad]
    return trainer(torch, args, model, torch.optim.AdamW(weights, lr=1e-4), 4,
                   lengths_of(torch, args)), 4


def detect(torch, args):
    """Mask R-CNN with a ResNet-50 on images of varying sizes."""
    from torchvision.models.detection import maskrcnn_resnet50_fpn

    torch.set_default_dtype(torch.float32)
    batch = 2 if args.tiny else 4
    model = maskrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, num_classes=91,
        **({"min_size": 64, "max_size": 96} if args.tiny else {})).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    sizes = torch.Generator(device="cpu").manual_seed(11)
    most = 96 if args.tiny else 1000

    def draw(low, high, *shape):
        return torch.randint(low, high, shape, generator=sizes, device="cpu")

    def step(_):
        images, targets = [], []
        for _ in range(batch):
            height, width = draw(most // 2, most, 2).tolist()
            count = int(draw(1, 12, 1))
            corner = draw(0, most // 4, count, 2)
            boxes = torch.cat([corner, corner + draw(8, most // 4, count, 2)], 1).float()
            images.append(torch.rand(3, height, width))
            targets.append({
                "boxes": boxes.to(images[0].device),
                "labels": draw(1, 91, count).to(images[0].device),
                "masks": torch.zeros(count, height, width, dtype=torch.uint8)})
        loss = sum(model(images, targets).values())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss
    return step, batch


def generate(torch, args):
    """Text from OPT-1.3B, its cache of keys and values growing by a token at a time."""
    model = opt(torch, "1.3b", args.tiny).eval().requires_grad_(False)
    batch, new = (2, 8) if args.tiny else (64, 24)
    kernels = repeatable(torch, args) + [torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION]

    def step(number):
        prompt = torch.randint(4, model.config.vocab_size, (batch, 64 + 64 * (number % 4)))
        with torch.no_grad(), torch.nn.attention.sdpa_kernel(kernels):
            ids = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=new,
                min_new_tokens=new, do_sample=False, use_cache=True, pad_token_id=1)
        return (ids[:, -new:].double() * torch.arange(1, new + 1)).sum()
    return step, batch * new


# How, whether it repeats itself, and steps for each one asked for: the short ones do more.
JOBS = {
    "full": (full, True, 2),
    "varying": (varying, True, 2),
    "recompute": (recompute, True, 1),
    "lora": (lora, True, 1),
    "detect": (detect, False, 3),
    "generate": (generate, True, 0.5),
}


def quiet():
    warnings.filterwarnings("ignore")
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"


def measure(torch, args, name, allocator):
    """One row, in this process."""
    device = "cpu" if args.tiny else "cuda"
    glake = None
    if allocator == "glake":
        import glake
        glake.use(settings={"pool.budget": f"{args.fit}GiB"} if args.fit else None)
    torch.use_deterministic_algorithms(JOBS[name][1])
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device(device)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    used, took, losses = 0, [], []
    if device == "cuda":
        torch.cuda.init()
        free_before, memory = torch.cuda.mem_get_info()
        if args.fit and not glake:
            torch.cuda.set_per_process_memory_fraction(args.fit * GIB / memory)
    step, samples = JOBS[name][0](torch, args)
    steps = max(int(args.steps * JOBS[name][2]), 1)
    for number in range(WARM + steps):
        if glake and number == WARM:
            warm = glake.stats(0)
        wait()
        began = time.perf_counter()
        losses.append(step(number).detach().double())
        wait()
        took.append(time.perf_counter() - began)
        if device == "cuda":
            used = max(used, free_before - torch.cuda.mem_get_info()[0])
    row = {"rate": samples * steps / sum(took[WARM:]), "first_s": took[0], "took_s": took,
           "losses": [float(loss).hex() for loss in losses], "loss": float(losses[-1]),
           "device": used, "pair_ns": pair(torch)}
    if glake:
        now = glake.stats(0)
        row.update(live=now["peak_live"], reserved=now["peak_reserved"], stats=now, warm={
            name: now[name] - warm[name] for name in (
                "allocs", "hits", "misses", "stitches", "called", "driver_ns")})
    elif device == "cuda":
        row.update(live=torch.cuda.max_memory_allocated(),
                   reserved=torch.cuda.max_memory_reserved())
    return row


def pair(torch):
    """ns that a tensor of 1 MiB takes to be made and dropped, Python and all."""
    best = 1e9
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(4000):
            torch.empty(1 << 20, dtype=torch.uint8)
        best = min(best, (time.perf_counter() - began) / 4000 * 1e9)
    return best


def imported():
    quiet()
    import torch
    import transformers
    import torchvision.models.detection  # noqa: F401
    transformers.logging.set_verbosity_error()
    from transformers import OPTForCausalLM  # noqa: F401
    return torch


def attempt(torch, args, name, allocator):
    """A row, or what was in the way, as a line of JSON."""
    try:
        return json.dumps(measure(torch, args, name, allocator))
    except Exception as error:  # whatever it is belongs into the table
        return json.dumps({"error": f"{type(error).__name__}: {str(error)[:600]}"})


def nursery(args, allocator):
    """Imports, and then runs a job in a fork for each line that comes in: a job, a batch."""
    torch = imported()
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            name, args.batch = line.split()[0], int(line.split()[1])
            print(attempt(torch, args, name, allocator), flush=True)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        print(json.dumps({"ended": os.waitstatus_to_exitcode(status)}), flush=True)


def command(args, *more):
    own = [sys.executable, os.path.abspath(__file__), "--steps", str(args.steps),
           "--fit", str(args.fit), "--batch", str(args.batch)]
    return own + ["--tiny"] * args.tiny + list(more)


def environment(allocator):
    conf = ALLOCATORS[allocator]
    path = os.pathsep.join(filter(None, [
        HERE, os.path.join(HERE, "../../lib/front"), os.environ.get("PYTHONPATH")]))
    return dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf, PYTORCH_ALLOC_CONF=conf,
                CUBLAS_WORKSPACE_CONFIG=":4096:8", PYTORCH_NVML_BASED_CUDA_CHECK="1",
                TOKENIZERS_PARALLELISM="false", PYTHONPATH=path)


class Runner:
    """Rows from the nursery of one allocator."""

    def __init__(self, args, allocator):
        self.args, self.allocator, self.child = args, allocator, None
        if not args.fresh:
            self.child = subprocess.Popen(
                command(args, "--nursery", allocator), env=environment(allocator), text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def row(self, name, batch=0):
        self.args.batch = batch
        if not self.child:
            run = subprocess.run(command(self.args, "--child", name, self.allocator), text=True,
                                 env=environment(self.allocator), capture_output=True, check=False)
            lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
            said = (run.stderr.strip().splitlines() or ["no output"])[-1]
            return json.loads(lines[-1]) if lines else {"error": said}
        self.child.stdin.write(f"{name} {batch}\n")
        self.child.stdin.flush()
        row = {"error": "no output"}
        for line in self.child.stdout:
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            if "ended" in said:
                return row if not said["ended"] else dict(row, error=f"ended {said['ended']}")
            row = said
        return {"error": "its nursery has gone"}

    def close(self):
        if self.child:
            self.child.stdin.close()
            self.child.wait(60)


def fit(args, runners):
    """The largest batches, by halving."""
    print(f"\n| job in {args.fit} GiB | allocator | largest batch |\n|---|---|---|")
    for name in args.jobs.split(","):
        for allocator, runner in runners.items():
            fits, fails = 0, 64
            while fails - fits > 1:
                batch = (fits + fails) // 2 if fits else min(8, fails // 2)
                if "error" in runner.row(name, batch):
                    fails = batch
                else:
                    fits = batch
            print(f"| {name} | {allocator} | {fits} |", flush=True)


def verdict(rows, row):
    """Whether the losses are those of the default allocator."""
    default, again = rows.get("default", {}), rows.get("default again", {})
    if again and default.get("losses") != again.get("losses"):
        return "does not repeat"
    return "yes" if row["losses"] == default.get("losses") else "NO"


def show(results):
    """The table, in Markdown."""
    print("\n| job | allocator | rate | of best | live GiB | reserved GiB | reserved / live "
          "| device GiB | first step s | loss as default |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, rows in results.items():
        good = [row for row in rows.values() if "error" not in row]
        best = max((row["rate"] for row in good), default=1)
        for allocator, row in rows.items():
            if "error" in row:
                print(f"| {name} | {allocator} | {row['error'][:80]} |")
                continue
            live, reserved = row.get("live", 0), row.get("reserved", 0)
            same = verdict(rows, row) if JOBS[name][1] else "does not repeat"
            print(f"| {name} | {allocator} | {row['rate']:.2f} | {100 * row['rate'] / best:.1f} % "
                  f"| {live / GIB:.2f} | {reserved / GIB:.2f} | {reserved / max(live, 1):.3f} "
                  f"| {row['device'] / GIB:.2f} | {row['first_s']:.2f} | {same} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--allocators", default=",".join(ALLOCATORS))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--json")
    parser.add_argument("--again", action="store_true", help="the default allocator twice")
    parser.add_argument("--rounds", type=int, default=1, help="of all rows; the best rate counts")
    parser.add_argument("--limit", type=float, default=1e9, help="begin no row after so many s")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="small, and on the CPU")
    parser.add_argument("--fit", type=int, default=0, metavar="GIB")
    parser.add_argument("--batch", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--nursery", help=argparse.SUPPRESS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.nursery:
        return nursery(args, args.nursery)
    if args.child:
        print(attempt(imported(), args, *args.child), flush=True)
        return 0
    began, results = time.time(), {}
    runners = {name: Runner(args, name) for name in args.allocators.split(",")}
    for name in () if args.fit else args.jobs.split(","):
        results[name] = {}
        again = {"default again": runners["default"]} if args.again and JOBS[name][1] else {}
        order = list({**runners, **again}.items())
        for _ in range(args.rounds):
            for allocator, runner in order:
                if time.time() - began > args.limit:
                    continue
                row = runner.row(name)
                print(f"# {time.time() - began:.0f} s: {name} {allocator}: "
                      f"{row.get('error') or '%.2f' % row['rate']}", flush=True)
                before = results[name].get(allocator, {})
                row["rates"] = before.get("rates", []) + [row.get("rate", 0)]
                row["rate"] = max(row["rates"])
                results[name][allocator] = row
                if args.json:
                    with open(args.json, "w", encoding="utf-8") as file:
                        json.dump(results, file, indent=1)
            order.reverse()  # whoever is first finds the GPU cool
    if args.fit:
        fit(args, runners)
    for runner in runners.values():
        runner.close()
    if results:
        show(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
