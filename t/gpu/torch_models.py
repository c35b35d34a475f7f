# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The jobs of torch_jobs.py: models with random weights, made on the GPU, and their steps. Each is a
function of torch and the options that gives a step and how many samples that is. `args.tiny`
makes them small enough for a CPU, `args.batch` is a batch of another size than the usual one.
"""

import collections
import contextlib
import random


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


def llama(tiny):
    """A Llama of 6.7 billion weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    hidden, inner, layers, heads = (64, 176, 2, 4) if tiny else (4096, 11008, 32, 32)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=512 if tiny else 32000, hidden_size=hidden, intermediate_size=inner,
        num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=heads,
        max_position_embeddings=2048, tie_word_embeddings=False, use_cache=False))


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


def recomputed(model):
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def fine_tune(torch, args, model, batch, lengths):
    """All weights by AdamW; weights, gradients and its states in bfloat16."""
    batch = args.batch or batch
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-5)
    return trainer(torch, args, model, optimizer, batch, lengths), batch


def lengths_of(torch, args):
    generator = torch.Generator(device="cpu").manual_seed(7)
    most = 64 if args.tiny else 2048
    return (torch.randint(most // 16, most // 8, (64,), generator=generator, device="cpu") * 8
            ).tolist()


def full(torch, args):
    return fine_tune(torch, args, opt(torch, "1.3b", args.tiny), 16, [512])


def varying(torch, args):
    return fine_tune(torch, args, opt(torch, "1.3b", args.tiny), 8, lengths_of(torch, args))


def recompute(torch, args):
    return fine_tune(torch, args, recomputed(opt(torch, "1.3b", args.tiny)), 32, [512])


def llama_full(torch, args):
    return fine_tune(torch, args, llama(args.tiny), 8, [512])


def llama_varying(torch, args):
    return fine_tune(torch, args, llama(args.tiny), 3, lengths_of(torch, args))


def llama_recompute(torch, args):
    return fine_tune(torch, args, recomputed(llama(args.tiny)), 4, lengths_of(torch, args))


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

    model = recomputed(opt(torch, "13b", args.tiny).requires_grad_(False)).train()
    for layer in model.model.decoder.layers:
        layer.self_attn.q_proj = Lora(layer.self_attn.q_proj)
        layer.self_attn.v_proj = Lora(layer.self_attn.v_proj)
    weights = [w for w in model.parameters() if w.requires_grad]
    batch = args.batch or 4
    return trainer(torch, args, model, torch.optim.AdamW(weights, lr=1e-4), batch,
                   lengths_of(torch, args)), batch


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


def mixture(torch, tiny):
    """A decoder of 2.9 billion weights whose layers have 16 experts; a token takes two of them."""
    nn, functional = torch.nn, torch.nn.functional
    words, hidden, inner, layers, heads, experts = (
        (512, 64, 128, 2, 4, 4) if tiny else (32000, 2048, 8192, 5, 16, 16))

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(hidden, experts, bias=False)
            self.up = nn.ModuleList(nn.Linear(hidden, inner, bias=False) for _ in range(experts))
            self.down = nn.ModuleList(nn.Linear(inner, hidden, bias=False) for _ in range(experts))

        def forward(self, x):
            gates, chosen = self.router(x).float().softmax(-1).topk(2)
            order = chosen.flatten().argsort(stable=True)
            counts = chosen.flatten().bincount(minlength=experts).tolist()
            parts = x[order // 2].split(counts)
            out = torch.cat([down(functional.gelu(up(part))) for up, down, part in zip(
                self.up, self.down, parts)])
            out = out[order.argsort()].unflatten(0, (-1, 2))
            return (out * gates.to(out.dtype).unsqueeze(-1)).sum(1)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
            self.out = nn.Linear(hidden, hidden, bias=False)
            self.experts = Experts()

        def forward(self, x):
            batch, length, _ = x.shape
            qkv = self.qkv(self.before(x)).view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(*qkv, is_causal=True)
            x = x + self.out(seen.transpose(1, 2).flatten(2))
            return x + self.experts(self.between(x).flatten(0, 1)).view_as(x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(words, hidden)
            self.layers = nn.Sequential(*[Layer() for _ in range(layers)])
            self.after = nn.LayerNorm(hidden)
            self.head = nn.Linear(hidden, words, bias=False)

        def forward(self, ids):
            scores = self.head(self.after(self.layers(self.words(ids))))[:, :-1]
            return functional.cross_entropy(scores.flatten(0, 1).float(), ids[:, 1:].flatten())

    return Model(), words


def moe(torch, args):
    """All weights of the mixture. Few words are frequent, in each step others, so that the count
    of an expert's tokens changes from step to step."""
    model, words = mixture(torch, args.tiny)
    batch, length = (2, 32) if args.tiny else (8, 1024)
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-5)
    attention = repeatable(torch, args)

    def step(number):
        rank = torch.rand(batch, length, dtype=torch.float32) ** 3 * words
        with torch.nn.attention.sdpa_kernel(attention):
            loss = model((rank.long() + 977 * number) % words)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss
    return step, batch


def decoder(torch, tiny):
    """A decoder of 1.3 billion weights; its caller attends, and keeps the keys and values."""
    nn, functional = torch.nn, torch.nn.functional
    words, hidden, layers, heads = (512, 64, 2, 4) if tiny else (32000, 2048, 24, 16)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
            self.out = nn.Linear(hidden, hidden, bias=False)
            self.up = nn.Linear(hidden, 4 * hidden, bias=False)
            self.down = nn.Linear(4 * hidden, hidden, bias=False)

        def forward(self, x, attend):
            qkv = self.qkv(self.before(x)).unflatten(-1, (3, heads, -1))
            x = x + self.out(attend(qkv).flatten(-2))
            return x + self.down(functional.gelu(self.up(self.between(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(words, hidden)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.after = nn.LayerNorm(hidden)

        def forward(self, ids, attend):
            x = self.words(ids)
            for number, layer in enumerate(self.layers):
                x = layer(x, lambda qkv, number=number: attend(number, qkv))
            return x

        def best(self, rows):
            """The next word of each, and its score."""
            return (self.after(rows) @ self.words.weight.T).max(-1)

    return Model().eval().requires_grad_(False), words


def kv(torch, args):
    """Text for 64 sequences at once. Each has a cache of keys and values for every layer, which
    grows by concatenation with every word; the place of one that is complete is for another."""
    model, words = decoder(torch, args.tiny)
    batch, new, least, most = (4, 4, 8, 96) if args.tiny else (64, 8, 64, 2880)
    kernels = repeatable(torch, args)
    attention = torch.nn.functional.scaled_dot_product_attention
    lengths = torch.Generator(device="cpu").manual_seed(13)
    caches, left, last = [None] * batch, [0] * batch, torch.zeros(batch, dtype=torch.long)
    places = torch.arange(1, batch + 1, dtype=torch.float64)

    def draw(low, high):
        return int(torch.randint(low, high, (1,), generator=lengths, device="cpu"))

    def read(place):
        """A new sequence: the caches of its prompt, and its first word."""
        def attend(_, qkv):
            qkv = qkv.permute(1, 2, 0, 3)
            caches[place].append(qkv[1:].contiguous())
            return attention(*qkv.unsqueeze(1), is_causal=True)[0].transpose(0, 1)

        caches[place], left[place] = [], draw(new, 8 * new)
        ids = torch.randint(words, (draw(least, most),))
        last[place] = model.best(model(ids, attend)[-1]).indices

    def attend(layer, qkv):
        """One word of each sequence."""
        seen = []
        for cache, query, more in zip(caches, qkv[:, 0].unbind(), qkv[:, 1:].unbind()):
            cache[layer] = torch.cat([cache[layer], more.unsqueeze(2)], 2)
            keys, values = cache[layer].unsqueeze(1)
            seen.append(attention(query[None, :, None], keys, values)[0, :, 0])
        return torch.stack(seen)

    def step(_):
        total = 0
        with torch.no_grad(), torch.nn.attention.sdpa_kernel(kernels):
            for _ in range(new):
                for place in range(batch):
                    if not left[place]:
                        caches[place] = None  # free before the next one's are made
                        read(place)
                    left[place] -= 1
                found = model.best(model(last, attend))
                last.copy_(found.indices)
                total = total + (found.values.double() * places).sum()
        return total
    return step, batch * new


def sizes(torch, args):
    """No model: blocks of random sizes on four streams, of which another one uses every third, too."""
    count, least, most, bound = (200, 10, 20, 24 << 20) if args.tiny else (2000, 10, 30, 24 << 30)
    streams = [] if args.tiny else [torch.cuda.Stream() for _ in range(4)]
    choice = random.Random(17)
    live, held = [], 0

    def step(_):
        nonlocal held
        for _ in range(count):
            size = int(2 ** choice.uniform(least, most))
            while held + size > bound:
                number = choice.randrange(len(live))
                live[number], live[-1] = live[-1], live[number]
                held -= live.pop().numel()
            first, second = choice.sample(range(4), 2)
            with torch.cuda.stream(streams[first]) if streams else contextlib.nullcontext():
                block = torch.empty(size, dtype=torch.uint8)
                block[:1024].zero_()
            if streams and choice.randrange(3) == 0:
                block.record_stream(streams[second])
            live.append(block)
            held += size
        return torch.zeros(())
    return step, count


# How; whether it repeats itself to the last bit; steps for each one asked for, the short ones do
# more; with --fit, how many steps show what it needs, and a batch that may be about right for
# 24 GiB. The most telling come first: lengths that vary leave holes of all sizes.
Job = collections.namedtuple("Job", "make repeats share fit_steps fit_guess", defaults=(0, 0))
JOBS = {
    "llama_varying": Job(llama_varying, True, 1),
    "varying": Job(varying, True, 2, 4, 5),
    "detect": Job(detect, False, 3),
    "moe": Job(moe, True, 2),
    "kv": Job(kv, True, 0.5),
    "lora": Job(lora, True, 0.75),
    "llama_recompute": Job(llama_recompute, True, 0.75),
    "full": Job(full, True, 2, 2, 17),
    "generate": Job(generate, True, 0.5),
    "llama": Job(llama_full, True, 1),
    "recompute": Job(recompute, True, 1, 2, 40),
    "sizes": Job(sizes, True, 1),
}
