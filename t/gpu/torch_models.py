# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The jobs of torch_jobs.py: models with random weights, made on the GPU, and their steps. Each is a
function of torch and the options that gives a step and how many samples that is. `args.tiny`
makes them small enough for a CPU, `args.batch` is a batch of another size than the usual one.
"""

import collections


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


# How; whether it repeats itself to the last bit; steps for each one asked for, the short ones do
# more; with --fit, how many steps show what it needs, and a batch that may be about right for
# 24 GiB. The most telling come first: lengths that vary leave holes of all sizes.
Job = collections.namedtuple("Job", "make repeats share fit_steps fit_guess", defaults=(0, 0))
JOBS = {
    "llama_varying": Job(llama_varying, True, 1),
    "varying": Job(varying, True, 2, 4, 5),
    "detect": Job(detect, False, 3),
    "lora": Job(lora, True, 0.75),
    "llama_recompute": Job(llama_recompute, True, 0.75),
    "full": Job(full, True, 2, 2, 17),
    "generate": Job(generate, True, 0.5),
    "llama": Job(llama_full, True, 1),
    "recompute": Job(recompute, True, 1, 2, 40),
}
