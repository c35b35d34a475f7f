# SPDX-License-Identifier: LGPL-2.1-or-later
"""
An engine of a Llama of random weights with caches of several kinds, by turns, under the same requests and with the same
memory: tokens a second, requests at a time, memory, and whether they say the same.

    python3 engine                       on a GPU: a model like a 7B, some minutes
    python3 engine --device cpu          on the software device of glake (GLAKE_DRIVER_BACKEND=soft), to see that it runs

Three parts, --only NAMES:

    equal    all requests are answered by each cache, with and without sharing; the same tokens. In float32 kernels
             differ in the last bits too, so that two tokens that are as good as each other may change places: where
             answers differ, how far the next best token was behind is told. In bfloat16 each kernel, and each batch,
             rounds otherwise, after which such texts part: that says nothing of a cache
    speed    for some seconds each, with a queue that does not end, and requests in the middle of their lives at first
    sharing  64 sequences behind a beginning of 8192 tokens, which one of them has published

    python3 engine --only equal,speed --caches glake,glake-host --keep 512     with the first tokens of long sequences on
                                         the host, whose processor attends to them beside the GPU
"""

import argparse
import gc
import json
import os
import statistics
import sys
import traceback
from collections import deque
from pathlib import Path

import torch

import attention
import engine
from caches import CACHES, PAGE, SHARING
from engine import Engine, now
from model import SHAPES, Llama

GIB, MIB = 1 << 30, 1 << 20


def size_of(text):
    """32GiB, 48MiB or a number of bytes."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB)):
        if text.endswith(unit):
            return int(float(text[:-3]) * factor)
    return int(text)


def emptied(device):
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


class Bench:
    def __init__(self, wanted):
        self.wanted, self.device = wanted, torch.device(wanted.device)
        self.dtype = getattr(torch, wanted.dtype)
        self.names = wanted.caches.split(",")
        self.results = {"device": str(self.device), "torch": torch.__version__, "wanted": vars(wanted)}
        if self.device.type == "cuda":
            self.results["gpu"] = torch.cuda.get_device_name(self.device)
        self.failed, self.models = [], {}

    def say(self, text):
        print(text, flush=True)

    def must(self, true, text):
        self.say(("" if true else "WRONG: ") + text)
        if not true:
            self.failed.append(text)

    def tried(self, name, call, *arguments):
        """What fails with one cache is told, and the others go on."""
        try:
            return call(*arguments)
        except Exception as error:
            traceback.print_exc()
            self.failed.append(f"{name}: {type(error).__name__}: {error}")
        emptied(self.device)
        return None

    def ways(self, shape, dtype, most):
        key = f"{dtype}".removeprefix("torch.")
        way, told = attention.way_for(shape, self.device, dtype, self.wanted.attention, most)
        self.say(f"attention of a batch in {key}: {way}"
                 + (f" ({', '.join(f'{name} {text}' for name, text in told.items())})" if told else ""))
        self.results.setdefault("attention", {})[key] = {"way": way, "tried": told}
        return way

    def cache(self, name, shape, budget, most, slots, dtype, way):
        options = {"ahead": self.wanted.ahead} if name.startswith("glake") and self.wanted.ahead else {}
        if name == "glake-host":
            options["keep"] = self.wanted.keep
        return CACHES[name](shape, budget, most, slots, self.device, dtype, way, **options)

    def model(self, name):
        """The model of speed and sharing."""
        if name not in self.models:
            most = max(self.wanted.most, self.wanted.prefix + 64)
            self.models[name] = Llama(SHAPES[name], self.device, self.dtype, most=most)
        return self.models[name]

    # the same tokens

    def answers(self, model, name, requests, budget, most, slots, way, forks=True):
        # addresses take no memory: with so many, offsets are of more than 32 bits
        most *= 128 if name.startswith("glake") else 1
        cache = self.cache(name, model.shape, budget, most, slots, model.dtype, way)
        worker = Engine(model, cache, watch=True, graphs=not self.wanted.eager)
        worker.publishes = worker.publishes and forks
        worker.put(requests)
        if not forks:
            worker.queue = deque([one] for group in worker.queue for one in group)
        worker.run()
        told = {"way": cache.way, "preempted": worker.preempted, "adopted": worker.adopted, "forked": worker.forked,
                "at_a_time": worker.most_running, "graphs": worker.graphs is not None, "most_far": cache.most_far}
        worker.stop()
        cache.close()
        emptied(self.device)
        return worker.answers, told

    def compared(self, label, right, answers, tie):
        """Answers that are equal; and of the others whether the two tokens that differ first were as good."""
        equal, ties, wrong = 0, [], []
        for key, (tokens, margins) in right.items():
            said = answers[key][0]
            if said == tokens:
                equal += 1
                continue
            at = next(i for i, (a, b) in enumerate(zip(tokens, said)) if a != b)
            (ties if margins[at] <= tie else wrong).append((key, at, margins[at]))
        self.must(not wrong and len(answers) == len(right),
                  f"  {label}: {equal} of {len(right)} answers equal" + (
                      f", {len(ties)} differ from a tie on (next best at most {max(m for _, _, m in ties):.2g} behind)"
                      if ties else "") + (f", wrong: {wrong[:3]}" if wrong else ""))
        return {"equal": equal, "ties": len(ties), "wrong": len(wrong), "of": len(right)}

    def equal(self):
        wanted = self.wanted
        shape, most = SHAPES[wanted.equal_model], wanted.equal_most
        dtype = getattr(torch, wanted.equal_dtype)
        tie = {"float64": 0.0, "float32": 1e-4}.get(wanted.equal_dtype, 0.1)
        rows = self.results["equal"] = {}
        kind = str(dtype).removeprefix("torch.")
        model = Llama(shape, self.device, dtype, most=most)
        way = self.ways(shape, dtype, most)
        token = 2 * shape.layers * shape.groups * shape.size * dtype.itemsize
        # at a time they want more than there is, so that some have to go and come back
        budget = max(int(most * token * wanted.equal_slots * 0.2), most * token * 5 // 4 + PAGE)
        requests = engine.load(shape, wanted.equal_requests, most, 6, shares=50, samples=3, prefixes=2)
        self.say(f"equal tokens: {len(requests)} requests, {sum(r.samples for r in requests)} answers, {kind}, "
                 f"{budget / MIB:.0f} MiB, ties within {tie}")
        right = None
        for name in self.names:
            # with the layer in front a sequence, or a prefix, takes a page a lane at least
            pages = 2 * shape.layers * (wanted.equal_slots + 4) if name == "glake-layer" else 0
            mine = budget + pages * PAGE
            begin = now()
            answers, told = self.tried(name, self.answers, model, name, requests, mine, most, wanted.equal_slots,
                                       way) or ({}, {})
            if not told:
                continue
            told["seconds"] = now() - begin
            right = right or answers
            label = (f"{name} ({told['way']}{', captured' if told['graphs'] else ''}; {told['preempted']} went and "
                     f"came back, {told['adopted']} adopted, {told['forked']} forked, {told['seconds']:.1f} s)")
            rows[f"{kind} {name}"] = {**told, **self.compared(label, right, answers, tie)}
            if name in SHARING and wanted.apart:
                alone, told = self.answers(model, name, requests, mine, most, wanted.equal_slots, way, False)
                rows[f"{kind} {name} apart"] = self.compared(f"{name}, nothing shared", right, alone, tie)
        del model
        emptied(self.device)

    # tokens a second

    def speed(self):
        wanted, dtype = self.wanted, self.dtype
        shape, most, budget = SHAPES[wanted.model], wanted.most, size_of(wanted.memory)
        begin = now()
        model = self.model(wanted.model)
        way = self.ways(shape, dtype, most)
        token = 2 * shape.layers * shape.groups * shape.size * dtype.itemsize
        mean = most // 4
        self.say(f"speed: {wanted.model}, {token / 1024:.0f} KiB a token, {budget / GIB:.2f} GiB = {budget // token} "
                 f"tokens, at most {most} a sequence, {wanted.seconds:g} s a run")
        slots = wanted.slots or min(max(int(2.5 * budget // (mean * token)), 4), 512)
        rows = self.results["speed"] = {name: [] for name in self.names}
        for turn in range(wanted.rounds):
            for name in self.names if turn % 2 == 0 else self.names[::-1]:
                row = self.tried(name, self.one, model, name, budget, most, slots, way, turn)
                if not row:
                    continue
                rows[name].append(row)
                self.say(f"  {name} ({row['way']}{', captured' if row['graphs'] else ''}): {row['tokens_s']:.0f} tokens/s, "
                         f"{row['at_a_time']:.1f} at a time, {row['admitted']} until there was no room, {row['steps']} steps, "
                         f"{row['preempted']} went and came back, held over needed {row['held_over_needed']:.3f}, "
                         f"{'' if row['left'] else 'the queue was empty at the end, '}"
                         f"{now() - begin:.0f} s so far")
        self.table({name: rows[name] for name in rows if len(rows[name]) == wanted.rounds})

    def one(self, model, name, budget, most, slots, way, turn):
        wanted = self.wanted
        cache = self.cache(name, model.shape, budget, most, slots, model.dtype, way)
        worker = Engine(model, cache, chunk=wanted.chunk, graphs=not wanted.eager)
        # a sequence that is found running has a fifth more than the mean: longer ones are there for longer
        midway = min(cache.slots, int(budget / (1.2 * most / 4 * cache.token)))
        requests = engine.load(model.shape, wanted.requests, most, 100 + turn, shares=wanted.shares,
                               samples=wanted.samples, midway=midway)
        worker.put(requests)
        worker.run(wanted.warm, fills=True)  # the batch is full then, and its steps are captured
        for counter in ("steps", "made", "prefilled", "preempted", "most_running", "running_sum"):
            setattr(worker, counter, 0)
        worker.samples_of_memory = []
        made, took = worker.run(wanted.seconds)
        memory = worker.samples_of_memory or [(cache.held(), max(cache.needed(), 1))]
        row = {"way": cache.way, "graphs": worker.graphs is not None, "tokens_s": made / took, "steps": worker.steps,
               "at_a_time": worker.running_sum / max(worker.steps, 1), "most_at_a_time": worker.most_running,
               "admitted": worker.admitted or worker.most_running,
               "prefilled_s": worker.prefilled / took, "preempted": worker.preempted,
               "held_over_needed": statistics.mean(held / max(needed, 1) for held, needed in memory),
               "held": max(held for held, _ in memory), "saved": worker.saved, "took": took,
               "left": len(worker.queue)}
        if hasattr(cache, "cache"):
            row["figures"] = cache.cache.figures()
        worker.stop()
        cache.close()
        emptied(self.device)
        return row

    def table(self, rows):
        def over(name, key):
            values = [row[key] for row in rows[name]]
            return statistics.median(values), min(values), max(values)
        self.say("| cache | tokens/s: median (least to most) | at a time | held over needed | bytes saved by sharing |")
        self.say("|---|---|---|---|---|")
        for name in rows:
            rate, ratio = over(name, "tokens_s"), over(name, "held_over_needed")
            self.say(f"| {name}, {rows[name][0]['way']} | {rate[0]:.0f} ({rate[1]:.0f} to {rate[2]:.0f}) | "
                     f"{over(name, 'at_a_time')[0]:.1f} | {ratio[0]:.3f} ({ratio[1]:.3f} to {ratio[2]:.3f}) | "
                     f"{over(name, 'saved')[0] / MIB:.0f} MiB |")
        best = [name for name in rows if name.startswith("glake")]
        against = {}
        for mine in best:
            for name in rows:
                if name in best:
                    continue
                # of the same round, for the speed of a host changes with time
                for key in ("tokens_s", "at_a_time", "admitted"):
                    ratios = [a[key] / b[key] for a, b in zip(rows[mine], rows[name])]
                    against[f"{mine} / {name}, {key}"] = statistics.median(ratios), min(ratios), max(ratios)
        for name, (middle, least, largest) in against.items():
            self.say(f"  {name}: {middle:.3f} ({least:.3f} to {largest:.3f})")
        self.results["ratios"] = against

    # beginnings

    def sharing(self):
        wanted = self.wanted
        model, prefix, own = self.model(wanted.model), wanted.prefix, 16
        words = model.shape.vocabulary
        tokens = torch.randint(words, (prefix + own,), generator=torch.Generator().manual_seed(9)).tolist()
        requests = [engine.Request(i, tokens[:prefix] + [(i + t) % words for t in tokens[prefix:]], own, shared=prefix)
                    for i in range(wanted.behind)]
        self.results["sharing"] = {}
        for name in self.names:
            if name in SHARING:
                self.tried(name, self.behind, model, name, requests, prefix + 64)

    @torch.inference_mode()
    def behind(self, model, name, requests, most):
        """Sequences behind a beginning: the first publishes it, and the others adopt it."""
        count, prefix, lanes = len(requests), requests[0].shared, 2 * model.shape.layers
        alone = prefix * 2 * model.shape.layers * model.shape.groups * model.shape.size * model.dtype.itemsize
        room = 2 * alone + count * 2 * PAGE * (lanes if name == "glake-layer" else 1)
        cache = self.cache(name, model.shape, room, most, count, model.dtype, "loop")  # there are no steps
        before, worker, took = cache.held(), Engine(model, cache, graphs=False), []
        worker.put(requests)
        for _ in range(2):  # the first, and then the others
            begin = now()
            worker.admit()
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            took.append(now() - begin)
        held, others = cache.held() - before, len(worker.running) - 1
        # what they would hold by themselves, less what they hold, by what the copies of the beginning are
        apart = sum(cache.cost(n) for n in cache.tokens if n)
        share = (apart - held) / (max(others, 1) * cache.cost(prefix))
        self.results["sharing"][name] = {"running": others + 1, "saved": cache.saved(), "held": held, "share": share,
                                         "first_s": took[0], "others_s": took[1]}
        self.must(share >= 0.98 and others == count - 1,
                  f"sharing, {name}: {others + 1} sequences behind {prefix} tokens of {alone / MIB:.0f} MiB: "
                  f"{100 * share:.2f} % of the copies saved, {held / MIB:.0f} MiB held; the first took {took[0]:.3f} s, "
                  f"the others {took[1]:.3f} s together")
        worker.stop()
        cache.close()
        emptied(self.device)

    # layers that leave

    def layers_of(self, name, most):
        """What the parts of --layers are made with: only they need the library's planner."""
        import layers
        self.models.clear()
        emptied(self.device)
        return layers.Layers(self), SHAPES[name], Llama(SHAPES[name], self.device, self.dtype, most=most)

    def burst(self):
        parts, shape, model = self.layers_of(self.wanted.burst_model, self.wanted.prompts[1] + self.wanted.outputs[1])
        parts.burst(shape, model, size_of(self.wanted.burst_memory))

    def prompt(self):
        parts, shape, model = self.layers_of(self.wanted.prompt_model, self.wanted.prompt + 16)
        parts.prompt(shape, model, self.wanted.prompt)

    # a picture

    def picture(self, path):
        try:
            import matplotlib
            matplotlib.use("Agg")
            from matplotlib import pyplot
        except ImportError:
            self.say("no picture: matplotlib is not installed")
            return
        rows = self.results["speed"]
        names = [name for name in rows if rows[name]]
        figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.6))
        for axis, key, title in zip(axes, ("tokens_s", "at_a_time", "held_over_needed"),
                                    ("tokens a second", "requests at a time", "memory held over needed")):
            for at, name in enumerate(names):
                values = [row[key] for row in rows[name]]
                middle = statistics.median(values)
                axis.bar(at, middle, color="#2a6fb0" if name.startswith("glake") else "#b5bdc6",
                         yerr=[[middle - min(values)], [max(values) - middle]], capsize=3)
                axis.text(at, max(values), f"{middle:.0f}" if middle >= 100 else f"{middle:.3g}", ha="center", va="bottom", fontsize=8)
            axis.set_xticks(range(len(names)), names, rotation=35, ha="right", fontsize=8)
            axis.set_title(title, fontsize=10)
            axis.spines[["top", "right"]].set_visible(False)
        figure.suptitle(f"{self.wanted.model}, {self.results.get('gpu', 'CPU')}, {self.wanted.memory} of keys and values, "
                        f"at most {self.wanted.most} tokens a sequence", fontsize=10)
        figure.tight_layout()
        figure.savefig(path)
        self.say(f"picture: {path}")


def arguments():
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(prog="engine", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--device", default="cuda" if gpu else "cpu")
    first = parser.parse_known_args()[0].device.startswith("cuda")
    add("--layers", action="store_true", help="as --only burst,prompt")
    add("--only", default="burst,prompt" if "--layers" in sys.argv else "equal,sharing,speed")
    # flex attention that is not compiled looks at all blocks of the pool for each sequence; and what the processor of a
    # host attends to it does more slowly than any GPU
    add("--caches", default=",".join(name for name in CACHES if name != ("glake-host" if first else "paged")),
        help="of " + ", ".join(CACHES))
    add("--model", default="7b" if first else "tiny", choices=SHAPES)
    add("--dtype", default="bfloat16" if first else "float32")
    add("--memory", default="16GiB" if first else "64MiB", help="of keys and values, for each cache")
    add("--most", type=int, default=4096 if first else 256, help="tokens of a sequence")
    add("--slots", type=int, default=0, help="sequences at a time at the most; 0: 2.5 times those of mean length")
    add("--seconds", type=float, default=3 if first else 2)
    add("--warm", type=float, default=2.5 if first else 0.5, help="seconds before those")
    add("--rounds", type=int, default=3)
    add("--requests", type=int, default=1024 if first else 600, help="in the queue")
    add("--chunk", type=int, default=8192, help="tokens prefilled in one go")
    add("--shares", type=int, default=0, help="of a hundred requests that begin with what others begin with, in speed")
    add("--samples", type=int, default=1, help="of every eighth request, in speed")
    add("--ahead", type=int, default=0, help="tokens that a thread of glake has memory ready for")
    add("--keep", type=int, default=1024 if first else 48, help="tokens of a sequence on the GPU at least, of glake-host")
    add("--attention", default="auto", choices=["auto", "triton", "flash", "loop"])
    add("--eager", action="store_true", help="no CUDA graphs")
    add("--prefix", type=int, default=8192 if first else 4096)
    add("--behind", type=int, default=64 if first else 16, help="sequences behind the prefix")
    add("--equal-model", default="small" if first else "tiny", choices=SHAPES)
    add("--equal-dtype", default="float32")
    add("--equal-most", type=int, default=512 if first else 256)
    add("--equal-slots", type=int, default=16 if first else 6)
    add("--equal-requests", type=int, default=48 if first else 24)
    add("--apart", action="store_true", help="equal: also without sharing")
    add("--burst-model", default="7b-ungrouped" if first else "tiny", choices=SHAPES)
    add("--burst-memory", default="40GiB" if first else "48MiB", help="of keys and values, in the burst")
    add("--prompts", type=int, nargs=2, default=(8192, 32768) if first else (256, 1024), help="tokens of its prompts")
    add("--outputs", type=int, nargs=2, default=(384, 640) if first else (48, 80), help="tokens that they get")
    add("--prompt-model", default="7b" if first else "deep", choices=SHAPES)
    add("--prompt", type=int, default=131072 if first else 1024, help="tokens of the long prompt")
    add("--room", type=int, default=5 if first else 2, help="layers of it that there is memory for")
    add("--json", help="a file for all figures")
    add("--picture", help="a file, .svg or .png")
    return parser.parse_args()


def main():
    wanted = arguments()
    if wanted.device == "cpu":
        # the library's own device takes the part of the GPU; its lanes are memory of the host
        os.environ.setdefault("GLAKE_DRIVER_BACKEND", "soft")
        torch.set_num_threads(1)  # what there is to do is too little for more
    else:
        torch.backends.cuda.enable_cudnn_sdp(False)  # which makes a plan for each length
        torch.backends.cuda.matmul.allow_tf32 = False
    bench = Bench(wanted)
    for part in wanted.only.split(","):
        getattr(bench, part)()
    if wanted.picture and "speed" in bench.results:
        bench.picture(wanted.picture)
    if wanted.json:
        Path(wanted.json).write_text(json.dumps(bench.results, indent=1, default=str), encoding="utf-8")
    for text in bench.failed:
        print(f"WRONG: {text}")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
