#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Programs of PyTorch as people write them, each plain and with glake, in processes of their own.

    torch_world.py [--only A,B] [--glake 'python3 -m glake'] [--seconds S] [--jobs N] [--list]

Every program is small, loads nothing from anywhere, and gives values: losses, tokens, sums, what was
caught. They must be the same with glake as plain, to the last bit; where they are not, the plain one is
tried four times more, and one that does not repeat itself says nothing. One whose packages are not there
is skipped, and says which.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time

PROGRAMS = {}


def program(*packages, gpus=1):
    """A program, what it needs beside PyTorch, and how many GPUs."""
    def keep(function):
        PROGRAMS[function.__name__] = (function, packages, gpus)
        return function
    return keep


def seeded():
    import torch
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
    return torch


def llama(**more):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=512, intermediate_size=1024, num_hidden_layers=4,
                         num_attention_heads=8, vocab_size=1000, max_position_embeddings=1024,
                         **more)
    return LlamaForCausalLM(config)


def tokens(rows=4, length=64):
    import torch
    return torch.randint(0, 1000, (rows, length), generator=torch.Generator().manual_seed(1))


def generated(**how):
    model = llama().cuda().eval()
    out = model.generate(tokens().cuda(), max_new_tokens=48, do_sample=False, pad_token_id=0, **how)
    return out.sum(0).tolist()


# ---- transformers ----

@program("transformers", "accelerate")
def trainer():
    import torch
    from transformers import Trainer, TrainingArguments
    seeded()

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, i):
            ids = tokens(1, 128)[0].roll(i)
            return {"input_ids": ids, "labels": ids}

    with tempfile.TemporaryDirectory() as folder:
        made = Trainer(model=llama(), train_dataset=Rows(), args=TrainingArguments(
            folder, bf16=True, gradient_checkpointing=True, per_device_train_batch_size=4,
            max_steps=12, dataloader_num_workers=2, logging_steps=1, report_to=[],
            save_strategy="no", disable_tqdm=True, seed=0))
        made.train()
        return [row["loss"] for row in made.state.log_history if "loss" in row]


@program("transformers")
def generate_dynamic():
    return generated()


@program("transformers")
def generate_static():
    return generated(cache_implementation="static")


@program("transformers")
def generate_offloaded():
    return generated(cache_implementation="offloaded")


@program("transformers", "peft")
def lora():
    torch = seeded()
    from peft import LoraConfig, get_peft_model
    model = get_peft_model(llama(), LoraConfig(r=8, target_modules=["q_proj", "v_proj"])).cuda()
    steps = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    losses = []
    for i in range(8):
        ids = tokens(4, 128).roll(i).cuda()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        steps.step()
        steps.zero_grad()
        losses.append(loss.item())
    return losses


@program("accelerate", "transformers")
def accelerated():
    torch = seeded()
    from accelerate import Accelerator
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    model = llama()
    model, steps = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    losses = []
    for i in range(8):
        with accelerator.accumulate(model):
            ids = tokens(4, 128).roll(i).to(accelerator.device)
            loss = model(input_ids=ids, labels=ids).loss
            accelerator.backward(loss)
            steps.step()
            steps.zero_grad()
            losses.append(loss.item())
    return losses


# ---- others' libraries ----

@program("pytorch_lightning")
def lightning():
    torch = seeded()
    import pytorch_lightning as pl
    losses = []

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(),
                                           torch.nn.Linear(256, 10))

        def training_step(self, batch, _):
            loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    rows = torch.utils.data.TensorDataset(torch.randn(512, 64), torch.randint(0, 10, (512,)))
    with tempfile.TemporaryDirectory() as folder:
        pl.Trainer(max_epochs=2, accelerator="gpu", devices=1, logger=False, default_root_dir=folder,
                   enable_progress_bar=False, enable_model_summary=False,
                   enable_checkpointing=False).fit(
                       Net(), torch.utils.data.DataLoader(rows, batch_size=64, num_workers=2))
    return losses


@program("torch_geometric")
def geometric():
    torch = seeded()
    from torch_geometric.nn import GCNConv
    torch.use_deterministic_algorithms(False)
    edges = torch.randint(0, 2000, (2, 20000)).cuda()
    x = torch.randn(2000, 64).cuda()
    one, two = GCNConv(64, 128).cuda(), GCNConv(128, 7).cuda()
    steps = torch.optim.Adam([*one.parameters(), *two.parameters()], lr=0.01)
    for _ in range(10):
        loss = two(one(x, edges).relu(), edges).logsumexp(1).mean()
        loss.backward()
        steps.step()
        steps.zero_grad()
    return round(loss.item(), 3)


@program("gpytorch")
def gaussian():
    torch = seeded()
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x = torch.linspace(0, 1, 400).cuda()
    y = torch.sin(x * 6)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Model(x, y, likelihood).cuda()
    steps = torch.optim.Adam(model.parameters(), lr=0.1)
    score = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    for _ in range(10):
        steps.zero_grad()
        loss = -score(model(x), y)
        loss.backward()
        steps.step()
    return round(loss.item(), 3)


@program("timm")
def vision():
    torch = seeded()
    import timm
    losses = []
    model = timm.create_model("resnet18", num_classes=10).cuda().to(memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True
    steps = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(6):
        x = torch.randn(16, 3, 96, 96).cuda().to(memory_format=torch.channels_last)
        with torch.autocast("cuda"):
            loss = torch.nn.functional.cross_entropy(model(x), torch.arange(16).cuda() % 10)
        loss.backward()
        steps.step()
        steps.zero_grad()
        losses.append(round(loss.item(), 2))
    return losses


@program("sentence_transformers")
def sentences():
    torch = seeded()
    from transformers import BertConfig, BertModel
    model = BertModel(BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
                                 intermediate_size=256)).cuda().eval()
    with torch.inference_mode():
        return [model(input_ids=tokens(8, n).cuda()).pooler_output.sum().item() for n in (9, 70, 33)]


@program()
def unet():
    torch = seeded()
    nn, sizes = torch.nn, (32, 64, 128)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1)
                                      for a, b in zip((4, *sizes[:-1]), sizes))
            self.up = nn.ModuleList(nn.Conv2d(a + b, b, 3, padding=1)
                                    for a, b in zip(sizes[:0:-1], sizes[-2::-1]))
            self.out = nn.Conv2d(sizes[0], 4, 1)

        def forward(self, x):
            kept = []
            for layer in self.down:
                x = layer(x).relu()
                kept.append(x)
                x = nn.functional.avg_pool2d(x, 2)
            x = nn.functional.interpolate(x, scale_factor=2)
            for layer, old in zip(self.up, kept[-2::-1]):
                x = nn.functional.interpolate(x, size=old.shape[-2:])
                x = layer(torch.cat((x, old), 1)).relu()
            return self.out(x)

    net = Net().cuda()
    with torch.inference_mode():
        x = torch.randn(2, 4, 64, 64).cuda()
        for _ in range(20):
            x = x - 0.05 * net(x)
    return x.sum().item()


# ---- torch.compile and graphs ----

def compiled(mode):
    torch = seeded()
    net = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU())
                                for _ in range(4))).cuda()
    fast = torch.compile(net, mode=mode)
    steps = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for i in range(8):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(32 + 16 * (i % 2), 256).cuda()
        loss = fast(x).square().mean()
        loss.backward()
        steps.step()
        steps.zero_grad()
        losses.append(loss.item())
    return losses


@program()
def compile_default():
    return compiled("default")


@program()
def compile_reduce_overhead():
    return compiled("reduce-overhead")


@program()
def compile_autotune():
    return [round(x, 3) for x in compiled("max-autotune")]


@program()
def graph_trees():
    """Two paths after one beginning, live outputs between, and a graph that is recorded again."""
    torch = seeded()

    @torch.compile(mode="reduce-overhead")
    def first(x):
        return x.sin() + 1

    @torch.compile(mode="reduce-overhead")
    def left(x):
        return (x * 2).cos()

    @torch.compile(mode="reduce-overhead")
    def right(x):
        return (x @ x.T).softmax(1)

    said = []
    with torch.inference_mode():
        for i in range(30):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.full((64, 64), i / 30).cuda()
            y = first(x)
            z = left(y) if i % 3 else right(y)
            said.append((y.sum() + z.clone().sum()).item())
            del y, z
    return said


@program()
def graphed_callables():
    torch = seeded()
    net = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(),
                              torch.nn.Linear(256, 128)).cuda()
    x = torch.randn(64, 128, device="cuda", requires_grad=True)
    net = torch.cuda.make_graphed_callables(net, (x,))
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(6):
        loss = net(torch.randn(64, 128, device="cuda", requires_grad=True)).square().mean()
        loss.backward()
        steps.step()
        steps.zero_grad(set_to_none=False)
        losses.append(loss.item())
    return losses


@program()
def exported():
    torch = seeded()
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).cuda().eval()
    x = torch.randn(8, 64).cuda()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = torch._inductor.aoti_compile_and_package(
            torch.export.export(net, (x,)), package_path=os.path.join(folder, "net.pt2"))
        return torch._inductor.aoti_load_package(path)(x).sum().item()


# ---- memory ----

@program()
def mempool():
    torch = seeded()
    pool, other = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.randn(1 << 20, device="cuda")
        with torch.cuda.use_mem_pool(other):
            y = torch.ones(1 << 20, device="cuda")
        z = x * 2
    segments = [sum(b["size"] for s in p.snapshot() for b in s["blocks"]
                    if b["state"] == "active_allocated") for p in (pool, other)]
    value = (x + y + z).sum().item()
    count = pool.use_count()
    del x, y, z
    return value, segments, count


@program()
def graph_in_mempool():
    torch = seeded()
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    x = torch.zeros(1 << 18, device="cuda")
    graphs, outs = [], []
    for i in range(3):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            outs.append((x + i).sin())
        graphs.append(graph)
    said = []
    for i in range(3):
        x.fill_(i)
        for graph in graphs:
            graph.replay()
        said.append([out.sum().item() for out in outs])
    return said


@program()
def out_of_memory():
    torch = seeded()
    said = []
    torch.cuda.set_per_process_memory_fraction(0.1)
    for _ in range(3):
        try:
            kept = [torch.empty(1 << 28, device="cuda") for _ in range(1000)]
        except torch.cuda.OutOfMemoryError as error:
            said.append(str(error)[:20])
        kept = None
        said.append(torch.ones(1 << 20, device="cuda").sum().item())
    said.append(torch.cuda.get_per_process_memory_fraction())
    return said


@program()
def figures():
    torch = seeded()
    x = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
    said = [torch.cuda.memory_allocated()]
    torch.cuda.reset_peak_memory_stats()
    y = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
    del y
    said += [torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()]
    said.append(torch.cuda.memory_reserved() >= 3 << 20)
    del x
    torch.cuda.empty_cache()
    said += [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]
    said.append(sorted(torch.cuda.memory_stats()) == sorted(torch.cuda.memory_stats(0)))
    return said + [len(torch.cuda.memory_summary()) > 1000]


@program()
def history():
    import torch
    torch.cuda.memory._record_memory_history(max_entries=1000)
    kept = [torch.empty(1 << 20, device="cuda") for _ in range(4)]
    del kept[1]
    shot = torch.cuda.memory._snapshot()
    live = [b for s in shot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
    trace = shot["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    return [sorted(b["requested_size"] for b in live), all(b["frames"] for b in live),
            [sum(row["action"] == name for row in trace)
             for name in ("alloc", "free_requested", "free_completed")],
            any(f["name"] == "history" for b in live for f in b["frames"])]


@program()
def profiler():
    torch = seeded()
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], profile_memory=True) as p:
        x = torch.empty(1 << 20, device="cuda")
        y = x + 1
        del x, y
    return max(row.self_device_memory_usage for row in p.key_averages())


@program()
def saved_on_host():
    torch = seeded()
    net = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(6))).cuda()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = net(torch.randn(256, 512).cuda()).square().mean()
    loss.backward()
    return [loss.item(), net[0].weight.grad.sum().item()]


@program()
def streams():
    torch = seeded()
    side, said = torch.cuda.Stream(), []
    for i in range(50):
        x = torch.full((1 << 20,), float(i), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
            x.record_stream(side)
        del x
        z = torch.full((1 << 20,), -1.0, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        y.record_stream(torch.cuda.current_stream())
        said.append((y.sum() + z.sum()).item())
    return said


@program()
def loader_after_cuda():
    torch = seeded()
    torch.zeros(1, device="cuda")
    rows = torch.utils.data.TensorDataset(torch.arange(256.0))
    loader = torch.utils.data.DataLoader(rows, batch_size=32, num_workers=3, pin_memory=True)
    return [batch.cuda(non_blocking=True).sum().item() for (batch,) in loader]


def _doubled(tensors, answers):
    x = tensors.get()
    answers.put((x * 2).cpu().sum().item())
    x.fill_(7)
    import torch
    torch.cuda.synchronize()
    answers.put("done")


@program()
def shared_tensors():
    import torch
    context = torch.multiprocessing.get_context("spawn")
    tensors, answers = context.Queue(), context.Queue()
    child = context.Process(target=_doubled, args=(tensors, answers))
    child.start()
    x = torch.arange(1000.0, device="cuda")
    tensors.put(x)
    said = [answers.get(timeout=120), answers.get(timeout=120)]
    value = x.sum().item()
    child.join(60)
    return said + [value]


# ---- several GPUs ----

def _rank(rank, count, job, queue, port):
    import torch
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=count,
                            device_id=torch.device("cuda", rank))
    said = globals()[job](torch, dist, rank)
    if not rank:
        queue.put(said)
    dist.barrier()
    dist.destroy_process_group()


def spread(job):
    import socket

    import torch
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(_rank, (2, job, queue, port), 2)
    return queue.get()


def _trained(torch, net, inner=None):
    steps = torch.optim.AdamW(net.parameters(), lr=1e-3)
    losses = []
    for i in range(6):
        ids = tokens(4, 128).roll(i).cuda()
        loss = net(input_ids=ids, labels=ids).loss
        loss.backward()
        steps.step()
        steps.zero_grad()
        losses.append(round(loss.item(), 4))
    return losses


def _ddp(torch, dist, rank):
    from torch.nn.parallel import DistributedDataParallel
    return _trained(torch, DistributedDataParallel(llama().cuda(), device_ids=[rank]))


def _fsdp2(torch, dist, rank):
    from torch.distributed.fsdp import fully_shard
    net = llama().cuda()
    for layer in net.model.layers:
        fully_shard(layer)
    return _trained(torch, fully_shard(net))


def _registered(torch, dist, rank):
    group = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda", rank))
    pool = torch.cuda.MemPool(group.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        x = torch.full((1 << 20,), float(rank + 1), device="cuda")
    group.register_mem_pool(pool)
    for _ in range(4):
        dist.all_reduce(x)
    said = x.sum().item()
    group.deregister_mem_pool(pool)
    del x
    return said


@program("transformers", gpus=2)
def ddp():
    return spread("_ddp")


@program("transformers", gpus=2)
def fsdp2():
    return spread("_fsdp2")


@program(gpus=2)
def nccl_registered():
    return spread("_registered")


@program(gpus=2)
def data_parallel():
    torch = seeded()
    net = torch.nn.DataParallel(torch.nn.Linear(256, 256).cuda(), device_ids=[0, 1])
    losses = []
    for _ in range(6):
        loss = net(torch.randn(64, 256).cuda()).square().mean()
        loss.backward()
        losses.append(loss.item())
    return losses


@program(gpus=2)
def between_gpus():
    torch = seeded()
    x = torch.randn(1 << 20, device="cuda:0")
    y = x.to("cuda:1") * 2
    return [y.sum().item(), (y.to("cuda:0") - x).sum().item()]


# ---- the table ----

def run(name, words, seconds):
    """What a program gave, or why it gave nothing."""
    began = time.monotonic()
    try:
        done = subprocess.run([*words, os.path.abspath(__file__), "--program", name], timeout=seconds,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    except subprocess.TimeoutExpired:
        return None, f"no end in {seconds:g} s", seconds
    took = time.monotonic() - began
    rows = [row for row in done.stdout.splitlines() if row.startswith("VALUES ")]
    if done.returncode or not rows:
        return None, f"status {done.returncode}: " + "\n    ".join(
            done.stderr.strip().splitlines()[-12:]), took
    return json.loads(rows[-1][7:]), "", took


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--glake", default=f"{sys.executable} -m glake")
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--program", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.list:
        return print(*PROGRAMS, sep="\n")
    if args.program:
        print("VALUES", json.dumps(PROGRAMS[args.program][0]()), flush=True)
        return None
    import torch
    gpus, count = torch.cuda.device_count(), {}
    only = args.only.split(",") if args.only else list(PROGRAMS)

    def judged(name):
        _, packages, need = PROGRAMS[name]
        missing = [package for package in packages if not importlib.util.find_spec(package)]
        if missing or gpus < need:
            return "skip", f"no {', '.join(missing)}" if missing else f"{need} GPUs"
        plain, why, took = run(name, [sys.executable], args.seconds)
        if why:
            return "plain", f"fails without glake: {why}"
        values, why, longer = run(name, shlex.split(args.glake), args.seconds)
        if not why and values != plain and any(
                run(name, [sys.executable], args.seconds)[0] != plain for _ in range(4)):
            return "plain", "does not repeat itself without glake"
        if why or values != plain:
            return "WRONG", why or f"{plain} plain, {values} with glake"
        return "ok", f"{took:.1f} s plain, {longer:.1f} s with glake"

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, (verdict, text) in zip(only, pool.map(judged, only)):
            print(f"{verdict:5} {name}: {text}", flush=True)
            count[verdict] = count.get(verdict, 0) + 1
    print(", ".join(f"{number} {verdict}" for verdict, number in count.items()), flush=True)
    return sys.exit(1 if count.get("WRONG") else 0)


if __name__ == "__main__":
    main()
