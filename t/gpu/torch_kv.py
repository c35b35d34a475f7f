#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glake.kv on a GPU under PyTorch: attention over a batch that grew, against contiguous tensors, bit for bit and in
speed, and over sequences that share their beginnings; models of transformers, of random weights, whose generate()
runs on glake.kv.TransformersCache and on its own DynamicCache: the same tokens, tokens a second, memory.

    torch_kv.py [--only attention,shared,models,generate,turns,steps] [--new 2048] [--rounds 3] [--ways NAMES] [--json FILE]

turns: what generate measures, by parts of each way in turn, so that all have the same times of the host;
steps: what a forward of one token takes behind 512 to 2048 tokens, on the host and on the GPU, and which kernels that is.
"""

import argparse
import gc
import json
import statistics
import sys
import time
import traceback
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "lib/python")]
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import transformers  # noqa: E402
from transformers import DynamicCache  # noqa: E402

import glake  # noqa: E402
from glake import kv  # noqa: E402

RESULTS = {}


def timed(fn, rounds=20):
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        fn()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def attention():
    """Decode attention of 32 sequences of 4096 tokens, 32 heads over 8 of 128, plain strides."""
    batch, length, heads, groups, size = 32, 4096, 32, 8, 128
    torch.manual_seed(1)
    keys, values = (torch.randn(batch, groups, length, size, device="cuda", dtype=torch.bfloat16)
                    for _ in range(2))
    query = torch.randn(batch, heads, 1, size, device="cuda", dtype=torch.bfloat16)
    backends = {"flash": torch.nn.attention.SDPBackend.FLASH_ATTENTION,
                "efficient": torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION}
    rows = {}
    for order in ("layer", "token", "layer, batch as one"):
        one = order.endswith("one")  # sequences beside each other, as TransformersCache has them
        with kv.Cache(1 if one else batch, 8192, 64, shape=(batch, groups, size) if one else (groups, size),
                      dtype=keys.dtype, token_front=order == "token") as cache:
            slots = [cache.new() for _ in range(cache.slots)]
            k, v = ((cache.lane(i)[0].permute(1, 2, 0, 3) if one else cache.lane(i).transpose(1, 2))[:, :, :length]
                    for i in (6, 7))
            for n in range(256, length + 1, 256):  # it grows, and is written, by parts
                cache.step([n] * len(slots))
                k[:, :, n - 256:n].copy_(keys[:, :, n - 256:n])
                v[:, :, n - 256:n].copy_(values[:, :, n - 256:n])
            assert torch.equal(k, keys) and torch.equal(v, values), "contents"
            wide = [x.repeat_interleave(heads // groups, 1) for x in (keys, values)]
            # as a model without grouped heads would have it: the same addresses seen by more heads
            for name, backend in backends.items():
                grouped = name == "flash"
                with torch.nn.attention.sdpa_kernel(backend):
                    def run(a, b):
                        if grouped:
                            return F.scaled_dot_product_attention(query, a, b, enable_gqa=True)
                        return F.scaled_dot_product_attention(query[:, :groups], a, b)
                    same = torch.equal(run(keys, values), run(k, v))
                    plain, ours = [], []
                    for _ in range(5):
                        plain.append(timed(lambda: run(keys, values)))
                        ours.append(timed(lambda: run(k, v)))
                rows[f"{order} in front, {name}"] = {
                    "equal": same, "contiguous_ms": min(plain), "ours_ms": min(ours),
                    "of_speed": min(plain) / min(ours), "medians": statistics.median(plain) / statistics.median(ours)}
            del wide, k, v
            for slot in slots:
                cache.free(slot)
    for name, row in rows.items():
        print(f"attention, {name}: equal {row['equal']}, {row['contiguous_ms']:.4f} ms contiguous, "
              f"{row['ours_ms']:.4f} here, {100 * row['of_speed']:.1f} % of the speed "
              f"({100 * row['medians']:.1f} by medians)")
    RESULTS["attention"] = rows


def shared():
    """The same attention where sequences have their first 3000 tokens together, half of them by forks and half by a
    prefix that was published; and a graph of it, captured once, that is replayed while others grow, are forked and
    end, and after a suspension."""
    batch, length, front, heads, groups, size = 32, 4096, 3000, 32, 8, 128
    torch.manual_seed(2)
    keys, values = (torch.randn(batch, groups, length, size, device="cuda", dtype=torch.bfloat16)
                    for _ in range(2))
    for states in (keys, values):
        states[:, :, :front] = states[:1, :, :front]
    query = torch.randn(batch, heads, 1, size, device="cuda", dtype=torch.bfloat16)
    rows = {}
    for order in ("layer", "token"):
        with kv.Cache(batch + 8, 8192, 64, shape=(groups, size), dtype=keys.dtype,
                      token_front=order == "token", prefixes=1) as cache:
            first = cache.new()
            lanes = [cache.lane(i).transpose(1, 2) for i in (6, 7)]
            cache.grow(first, front)
            for lane, states in zip(lanes, (keys, values)):
                lane[first, :, :front].copy_(states[0, :, :front])
            cache.publish(first, b"front")
            for slot in range(1, batch):
                if slot % 2:
                    assert cache.fork(first, front) == slot
                else:
                    assert cache.new() == slot and cache.adopt(slot, b"front") == front
            cache.step([length] * batch + [0] * 8)
            k, v = (lane[:batch, :, :length] for lane in lanes)
            for lane, states in ((k, keys), (v, values)):
                lane[:, :, front:].copy_(states[:, :, front:])
            assert torch.equal(k, keys) and torch.equal(v, values), "contents"
            told = cache.figures()
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
                def run(a, b):
                    return F.scaled_dot_product_attention(query, a, b, enable_gqa=True)
                wanted = run(keys, values)
                same = torch.equal(wanted, run(k, v))
                plain, ours = [], []
                for _ in range(5):
                    plain.append(timed(lambda: run(keys, values)))
                    ours.append(timed(lambda: run(k, v)))
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    out = run(k, v)
            replays = []

            def replay(what):
                out.zero_()
                graph.replay()
                torch.cuda.synchronize()
                replays.append(what if torch.equal(out, wanted) else f"{what}: OTHER VALUES")
            replay("captured")
            others = [cache.fork(first, front), cache.new()]
            cache.grow(others[1], 5000)
            cache.grow(others[0], 6000)
            for slot in range(batch):
                cache.grow(slot, length + 700)
            replay("grown and forked")
            cache.trim(3, length + 10)
            cache.free(others[0])
            cache.withdraw(b"front")
            replay("trimmed and freed")
            torch.cuda.synchronize()
            glake.suspend()
            glake.resume()
            replay("suspended")
            rows[f"{order} in front"] = {
                "equal": same, "of_speed": min(plain) / min(ours), "replays": replays,
                "medians": statistics.median(plain) / statistics.median(ours),
                "held": told["held"], "shared": told["shared"]}
            del k, v, lanes, graph, out
    for name, row in rows.items():
        print(f"shared, {name}: equal {row['equal']}, {100 * row['of_speed']:.1f} % of the speed "
              f"({100 * row['medians']:.1f} by medians), {row['held'] >> 20} MiB held, {row['shared'] >> 20} shared; "
              f"replays: {', '.join(row['replays'])}")
    RESULTS["shared"] = rows


def small_models():
    T = transformers
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
             "num_key_value_heads": 4, "vocab_size": 1000, "max_position_embeddings": 4096}
    yield "llama", T.LlamaForCausalLM, T.LlamaConfig(**sizes)
    yield "mistral, window 64", T.MistralForCausalLM, T.MistralConfig(**sizes, sliding_window=64)
    yield "qwen3", T.Qwen3ForCausalLM, T.Qwen3Config(**sizes, head_dim=32)
    yield "gemma2, hybrid, window 64", T.Gemma2ForCausalLM, T.Gemma2Config(**sizes, head_dim=32, sliding_window=64)
    yield "gemma3, hybrid, window 64", T.Gemma3ForCausalLM, T.Gemma3TextConfig(
        **{**sizes, "num_hidden_layers": 8}, head_dim=32, sliding_window=64)
    yield "gpt-neox", T.GPTNeoXForCausalLM, T.GPTNeoXConfig(**{k: v for k, v in sizes.items() if "key" not in k})
    yield "opt", T.OPTForCausalLM, T.OPTConfig(
        hidden_size=256, ffn_dim=512, num_hidden_layers=4, num_attention_heads=8, vocab_size=1000,
        word_embed_proj_dim=256, max_position_embeddings=4096)


WAYS = {
    "greedy": {}, "sampled": {"do_sample": True, "top_k": 20},
    "beams": {"num_beams": 3}, "three each": {"do_sample": True, "num_return_sequences": 3},
}


def models():
    """Equal tokens by models, and by ways of generating."""
    equal, refused = 0, []
    for name, kind, config in small_models():
        torch.manual_seed(0)
        model = kind(config).cuda().to(torch.bfloat16).eval()
        model.generation_config.eos_token_id = None
        model.generation_config.pad_token_id = 0
        tokens = torch.randint(1, 1000, (5, 37), device="cuda")
        mask = torch.ones_like(tokens)
        mask[1, :9] = 0  # padded on the left
        for way, options in WAYS.items():
            for prompt in (tokens, tokens.repeat(1, 4))[:2 if way == "greedy" else 1]:
                masked = mask if prompt is tokens else mask.repeat(1, 4)
                said = []
                for make in (lambda: DynamicCache(config=config), lambda: kv.TransformersCache(config)):
                    torch.manual_seed(7)
                    past = make()
                    try:
                        out = model.generate(prompt, attention_mask=masked, max_new_tokens=90, past_key_values=past,
                                             do_sample=options.get("do_sample", False),
                                             **{k: v for k, v in options.items() if k != "do_sample"})
                        said.append(out)
                    except Exception as error:  # what it says is what is looked for
                        said.append(error)
                        traceback.print_exc(limit=4)
                    if hasattr(past, "close"):
                        past.close()
                sys.stdout.flush()
                if all(isinstance(x, torch.Tensor) for x in said) and torch.equal(*said):
                    equal += 1
                else:
                    refused.append(f"{name}, {way}, {prompt.shape[1]} tokens: {said[1] if isinstance(said[1], Exception) else 'other tokens'}")
        del model
    print(f"models: {equal} generations with equal tokens, {len(refused)} not")
    for text in refused:
        print("  " + text)
    RESULTS["models"] = {"equal": equal, "not": refused}


def one(model, config, make, prompt, new):
    gc.collect()
    torch.cuda.empty_cache()
    glake.trim()
    torch.cuda.reset_peak_memory_stats()
    free, _ = torch.cuda.mem_get_info()
    past, least = make(), [free]

    class Watch(transformers.generation.StoppingCriteria):
        def __call__(self, ids, scores, **_):
            if ids.shape[1] % 64 == 0:
                least[0] = min(least[0], torch.cuda.mem_get_info()[0])
                if hasattr(past, "figures"):
                    told = past.figures()
                    excess.append((ids.shape[1], told["held"] / max(told["needed"], 1)))
            return torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)
    excess = []
    torch.cuda.synchronize()
    begin = time.monotonic()
    out = model.generate(prompt, max_new_tokens=new, min_new_tokens=new, do_sample=False, past_key_values=past,
                         stopping_criteria=[Watch()])
    torch.cuda.synchronize()
    took = time.monotonic() - begin
    row = {"tokens_s": prompt.shape[0] * new / took, "device_bytes": free - least[0],
           "torch_peak": torch.cuda.max_memory_allocated(), "held_over_needed": excess}
    if hasattr(past, "figures"):
        row["figures"] = past.figures()
    if hasattr(past, "close"):
        past.close()
    return out, row


def wide_model():
    """A Llama with the shape of a 7B by layers and groups, fewer of them wide; and its caches."""
    config = transformers.LlamaConfig(hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
                                      num_attention_heads=32, num_key_value_heads=8, vocab_size=32000,
                                      max_position_embeddings=8192)
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    ways = {"DynamicCache": lambda: DynamicCache(config=config),
            "layer in front": lambda: kv.TransformersCache(config),
            "a thread ahead": lambda: kv.TransformersCache(config, ahead=16),
            "token in front": lambda: kv.TransformersCache(config, token_front=True)}
    return model, config, ways


@torch.inference_mode()
def steps():
    model, _, ways = wide_model()
    rows = {}
    for name in list(ways)[:2]:
        for length in (512, 1024, 1536, 2048):
            past = ways[name]()
            for begin in range(0, length, 512):
                model(torch.randint(1, 32000, (32, 512), device="cuda"), past_key_values=past, use_cache=True, logits_to_keep=1)
            token, host, whole = torch.randint(1, 32000, (32, 1), device="cuda"), [], []
            for _ in range(12):
                torch.cuda.synchronize()
                begin = time.monotonic()
                model(token, past_key_values=past, use_cache=True)
                host.append(time.monotonic() - begin)
                torch.cuda.synchronize()
                whole.append(time.monotonic() - begin)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
                model(token, past_key_values=past, use_cache=True)
                torch.cuda.synchronize()
            kernels = sorted(((e.device_time_total / 1e3, e.count, e.key) for e in seen.key_averages()), reverse=True)
            row = rows[f"{name}, {length}"] = {
                "host_ms": 1e3 * statistics.median(host), "whole_ms": 1e3 * statistics.median(whole),
                "gpu_ms": sum(took for took, _, _ in kernels), "kernels": kernels[:6]}
            print(f"a step behind {length} tokens, {name}: {row['whole_ms']:.1f} ms, the host's part {row['host_ms']:.1f}, kernels "
                  f"{row['gpu_ms']:.1f}: " + "; ".join(f"{took:.2f} ({count}) {key[:60]}" for took, count, key in kernels[:6]),
                  flush=True)
            if hasattr(past, "close"):
                past.close()
    RESULTS["steps"] = rows


def generate(new, rounds, wanted):
    model, config, ways = wide_model()
    ways = {name: ways[name] for name in wanted.split(",")}
    prompt = torch.randint(1, 32000, (32, 128), device="cuda")
    for name in ways:  # what runs first would warm the process up for the others
        one(model, config, ways[name], prompt, min(new, 256))
    rows, tokens = {name: [] for name in ways}, {}
    for turn in range(rounds):
        for name in list(ways) if turn % 2 == 0 else reversed(ways):
            out, row = one(model, config, ways[name], prompt, new)
            rows[name].append(row)
            same = torch.equal(tokens.setdefault("first", out), out)
            print(f"generate, {name}: {row['tokens_s']:.0f} tokens/s, {row['device_bytes'] / 2**30:.2f} GiB of the GPU, "
                  f"equal tokens {same}", flush=True)
            row["equal"] = same
    for name, list_ in rows.items():
        rates = [row["tokens_s"] for row in list_]
        excess = [f"{n}: {x:.3f}" for n, x in list_[-1]["held_over_needed"] if n % 512 < 64]
        print(f"generate, {name}: {statistics.median(rates):.0f} ({min(rates):.0f} to {max(rates):.0f}) tokens/s, "
              f"{max(row['device_bytes'] for row in list_) / 2**30:.2f} GiB; held over needed {', '.join(excess)}")
    RESULTS["generate"] = rows


PART = 16  # tokens


def turns(new, wanted):
    """The same with all caches alive, part by part: each part of a way beside the same part of the first, since what the
    host takes for a step changes by a half from one second to the next."""
    model, config, ways = wide_model()
    ways = {name: ways[name] for name in wanted.split(",")}
    prompt = torch.randint(1, 32000, (32, 128), device="cuda")
    for make in ways.values():
        one(model, config, make, prompt, PART)
    past, ids = {name: make() for name, make in ways.items()}, dict.fromkeys(ways, prompt)
    took, first = {name: [] for name in ways}, next(iter(ways))
    for part in range(new // PART):
        for name in list(ways) if part % 2 == 0 else reversed(ways):
            torch.cuda.synchronize()
            begin = time.monotonic()
            ids[name] = model.generate(ids[name], max_new_tokens=PART, min_new_tokens=PART, do_sample=False,
                                       past_key_values=past[name])
            torch.cuda.synchronize()
            took[name].append(time.monotonic() - begin)
    for name in ways:
        ratios = sorted(a / b for a, b in zip(took[first], took[name]))
        print(f"by turns, {name}: {32 * new / sum(took[name]):.0f} tokens/s, {sum(took[first]) / sum(took[name]):.3f} of {first}'s; "
              f"by parts of {PART} {statistics.median(ratios):.3f} ({ratios[len(ratios) // 4]:.3f} to {ratios[-1 - len(ratios) // 4]:.3f} "
              f"for the middle half), equal tokens {torch.equal(ids[name], ids[first])}")
        if hasattr(past[name], "close"):
            past[name].close()
    RESULTS["turns"] = took


def main():
    # cuDNN's attention makes a plan for each length, 6 ms a layer, and is not the same from run to run
    torch.backends.cuda.enable_cudnn_sdp(False)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="attention,shared,models,generate")
    parser.add_argument("--new", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", default="DynamicCache,layer in front,token in front", help="generate: which caches")
    parser.add_argument("--json")
    wanted = parser.parse_args()
    failed = 0
    for name in wanted.only.split(","):
        try:
            if name == "generate":
                generate(wanted.new, wanted.rounds, wanted.ways)
            elif name == "turns":
                turns(wanted.new, wanted.ways)
            else:
                {"attention": attention, "shared": shared, "models": models, "steps": steps}[name]()
        except Exception:
            traceback.print_exc()
            failed += 1
        sys.stdout.flush()
    if wanted.json:
        Path(wanted.json).write_text(json.dumps(RESULTS, default=str), encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main())
