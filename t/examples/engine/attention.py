# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Attention of a batch in decode: one query a sequence, over keys and values that lie at plain strides, [rows, heads,
size], where a sequence has the rows from `starts` on, as many as `lengths` says. Nothing behind the last of them is
touched, since where a cache has no tokens there may be no memory. Three ways, all of them one launch for a batch but
the last:

    triton  a kernel of this file, in float32 and in bfloat16; with a table it looks up the block of each token, as
            paged caches want it
    flash   the kernel that PyTorch has for sequences of different lengths; bfloat16
    loop    scaled_dot_product_attention of each sequence by itself: everywhere, and slow

Attention over a part of a sequence, which is weighed by the logarithm of its sum of exponentials (part, halves, merged), so
that parts may be in different places. And attention of a prompt, which is the same for all caches.
"""

import functools
import itertools
import math

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

HALF = (torch.bfloat16, torch.float16)


def sent(values, device, dtype=None):
    """Numbers of the host on the device, without a wait for what is queued there."""
    there = torch.tensor(values, dtype=dtype)
    return there.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else there

if triton:
    @triton.jit
    def _decode(Q, K, V, START, LENGTH, TABLE, PART, SUM, scale, q_row, q_head, k_row, k_head, v_row, v_head, table_row,
                GROUP: tl.constexpr, SIZE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
                SPLITS: tl.constexpr, PAGE: tl.constexpr):
        """A program has a sequence, a head of keys with all queries that share it, and a SPLITS-th of the tokens."""
        b, h, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
        length = tl.load(LENGTH + b)
        share = tl.cdiv(tl.cdiv(length, SPLITS), BLOCK) * BLOCK
        begin = split * share
        end = tl.minimum(begin + share, length)
        g, d = tl.arange(0, ROWS), tl.arange(0, SIZE)
        head = h * GROUP + g
        q = tl.load(Q + b * q_row + head[:, None] * q_head + d[None, :], mask=(g < GROUP)[:, None], other=0.0)
        most = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        out = tl.zeros((ROWS, SIZE), tl.float32)
        start = tl.load(START + b).to(tl.int64)
        for first in range(begin, end, BLOCK):
            t = first + tl.arange(0, BLOCK)
            there = t < end
            if PAGE:
                row = tl.load(TABLE + start * table_row + t // PAGE, mask=there, other=0).to(tl.int64) * PAGE + t % PAGE
            else:
                row = start + t
            k = tl.load(K + row[None, :] * k_row + h * k_head + d[:, None], mask=there[None, :], other=0.0)
            score = tl.dot(q, k, input_precision="ieee") * scale
            score = tl.where(there[None, :], score, float("-inf"))
            above = tl.maximum(most, tl.max(score, 1))
            fade = tl.exp2(most - above)
            weight = tl.exp2(score - above[:, None])
            v = tl.load(V + row[:, None] * v_row + h * v_head + d[None, :], mask=there[:, None], other=0.0)
            out = out * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
            total = total * fade + tl.sum(weight, 1)
            most = above
        at = (b * tl.num_programs(1) * GROUP + head) * SPLITS + split
        out = out / tl.where(total > 0, total, 1.0)[:, None]
        tl.store(PART + at[:, None] * SIZE + d[None, :], out.to(PART.dtype.element_ty), mask=(g < GROUP)[:, None])
        if SPLITS > 1:
            tl.store(SUM + at, most + tl.log2(total), mask=g < GROUP)

    @triton.jit
    def _merge(PART, SUM, OUT, SIZE: tl.constexpr, SPLITS: tl.constexpr):
        """Parts of a sequence's tokens, each weighed by the logarithm of its sum of exponentials."""
        at, s, d = tl.program_id(0).to(tl.int64), tl.arange(0, SPLITS), tl.arange(0, SIZE)
        weight = tl.load(SUM + at * SPLITS + s)
        weight = tl.exp2(weight - tl.max(weight, 0))
        part = tl.load(PART + (at * SPLITS + s)[:, None] * SIZE + d[None, :])
        out = tl.sum(part * weight[:, None], 0) / tl.sum(weight, 0)
        tl.store(OUT + at * SIZE + d, out.to(OUT.dtype.element_ty))


def splits_for(batch, groups, device):
    """Parts that the tokens of a sequence are cut into, so that a small batch keeps the whole GPU busy."""
    units = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
    return min(16, 1 << max(0, math.ceil(math.log2(4 * units / (batch * groups)))))


def by_triton(q, k, v, starts, lengths, table=None, page=0, splits=None, apart=False):
    """`apart`: as halves() has it."""
    batch, heads, size = q.shape
    groups = k.shape[1]
    splits = max(splits or splits_for(batch, groups, q.device), 1 + apart)
    out = torch.empty(batch, heads, size, device=q.device, dtype=q.dtype)
    part, sums = out, out
    if splits > 1:
        part = torch.empty(batch, heads, splits, size, device=q.device, dtype=torch.float32)
        sums = torch.empty(batch, heads, splits, device=q.device, dtype=torch.float32)
    group = heads // groups
    _decode[(batch, groups, splits)](
        q, k, v, starts, lengths, table if page else lengths, part, sums, math.log2(math.e) / size**0.5,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        table.stride(0) if page else 0, GROUP=group, SIZE=size,
        ROWS=max(16, triton.next_power_of_2(group)), BLOCK=64 if q.dtype in HALF else 32, SPLITS=splits, PAGE=page,
        num_warps=4, num_stages=3 if q.dtype in HALF else 1)
    if apart:
        return part, sums * math.log(2)
    if splits > 1:
        _merge[(batch * heads,)](part, sums, out, SIZE=size, SPLITS=splits, num_warps=1)
    return out


def flash_starts(starts):
    """What by_flash wants of them, once for all layers."""
    return torch.arange(starts.shape[0] + 1, device=starts.device, dtype=torch.int32), F.pad(starts, (0, 1)).int()


def by_flash(q, k, v, starts, lengths, most):
    """seqused_k: of the rows from a start on only so many are looked at, so that starts need not follow each other."""
    return torch.ops.aten._flash_attention_forward(
        q, k, v, *starts, 1, most, 0.0, False, False, seqused_k=lengths)[0]


def by_loop(q, read, lengths):
    """`read` gives keys and values, [tokens, heads, size], of the i-th sequence."""
    out = torch.empty_like(q)
    for i, length in enumerate(lengths):
        k, v = read(i, length)
        out[i] = over(q[i:i + 1], k, v)[0]
    return out


def part(q, k, v):
    """A query, [heads, size], over some tokens of its sequence: what they say, and the logarithm of what they weigh."""
    kind = torch.float32 if q.dtype in HALF else q.dtype
    q, k, v = q.to(kind).unflatten(0, (k.shape[1], -1)), k.to(kind), v.to(kind)
    scores = torch.einsum("hgd,thd->hgt", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("hgt,thd->hgd", scores.softmax(-1), v).flatten(0, 1), scores.logsumexp(-1).flatten()


def halves(q, read, lengths):
    """part() of each sequence: [batch, heads, parts, size] and [batch, heads, parts]; one with no tokens weighs nothing."""
    kind = torch.float32 if q.dtype in HALF else q.dtype
    out, weight = q.new_zeros(q.shape, dtype=kind), q.new_full(q.shape[:2], float("-inf"), dtype=kind)
    for i, length in enumerate(lengths):
        if length:
            out[i], weight[i] = part(q[i], *read(i, length))
    return out[:, :, None], weight[:, :, None]


def merged(*both):
    """Attention over all tokens of which there are such parts."""
    out, weight = (torch.cat(parts, 2) for parts in zip(*both))
    return (out * weight.softmax(2)[..., None]).sum(2)


@functools.lru_cache
def has_flash(device, dtype):
    """Whether PyTorch's kernel for sequences of different lengths is there, and right about the last rows of one."""
    if device.type != "cuda" or dtype not in HALF:
        return False
    q, k, v = (torch.randn(n, heads, 64, device=device, dtype=dtype) for n, heads in ((5, 8), (9, 2), (9, 2)))
    try:
        cut = [torch.tensor([0, n], dtype=torch.int32, device=device) for n in (5, 9)]
        said = torch.ops.aten._flash_attention_forward(q, k, v, *cut, 5, 9, 0.0, True, False)[0]
    except (RuntimeError, TypeError) as error:
        print(f"prompts without flash attention: {error}")
        return False
    return torch.allclose(said.float(), by_sdpa(q.float(), k.float(), v.float()), atol=0.03)


def over(q, k, v):
    """Attention of the last tokens of a sequence over all of it: [rows, heads, size] over [tokens, groups, size]."""
    rows, tokens = q.shape[0], k.shape[0]
    if rows > 1 and has_flash(q.device, q.dtype):
        cut = [sent([0, n], q.device, torch.int32) for n in (rows, tokens)]
        return torch.ops.aten._flash_attention_forward(q, k, v, *cut, rows, tokens, 0.0, True, False)[0]
    return by_sdpa(q, k, v)


def by_sdpa(q, k, v):
    rows, tokens = q.shape[0], k.shape[0]
    mask = None
    if 1 < rows < tokens:
        mask = torch.ones(rows, tokens, dtype=torch.bool, device=q.device).tril(tokens - rows)
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=1 < rows == tokens, enable_gqa=True)[0].transpose(0, 1)


def of_prompts(q, k, v, counts):
    """Attention of whole prompts, one behind the other in the rows."""
    if has_flash(q.device, q.dtype):
        cut = sent([0, *itertools.accumulate(counts)], q.device, torch.int32)
        return torch.ops.aten._flash_attention_forward(
            q, k, v, cut, cut, max(counts), max(counts), 0.0, True, False)[0]
    return torch.cat([over(*part) for part in zip(*(x.split(counts) for x in (q, k, v)))])


def _timed(call):
    for _ in range(3):
        call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(10):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 10


def way_for(shape, device, dtype, wanted="auto", most=4096):
    """
    The fastest way that is right on this GPU: each is tried on 64 sequences of different lengths, and its time told.
    """
    if device.type != "cuda":
        return "loop", {}
    random = torch.Generator(device).manual_seed(3)
    batch, groups = 64, shape.groups
    k, v = (torch.randn(batch * 1024, groups, shape.size, device=device, dtype=dtype, generator=random)
            for _ in range(2))
    q = torch.randn(batch, shape.heads, shape.size, device=device, dtype=dtype, generator=random)
    starts = torch.arange(batch, device=device) * 1024
    counts = [1 + 1023 * i // batch for i in range(batch)][::-1]
    lengths = torch.tensor(counts, device=device, dtype=torch.int32)
    right = by_loop(q, lambda i, n: (k[1024 * i:1024 * i + n], v[1024 * i:1024 * i + n]), counts).float()
    ways = {"triton": lambda: by_triton(q, k, v, starts, lengths),
            "flash": lambda: by_flash(q, k, v, flash_starts(starts), lengths, most)}
    told, times = {}, {}
    for name, call in ways.items():
        if wanted not in ("auto", name):
            continue
        try:
            wrong = (call().float() - right).abs().max().item()
            if wrong > (0.03 if dtype in HALF else 1e-4):
                told[name] = f"wrong by {wrong:.2g}"
                continue
            times[name] = _timed(call)
            told[name] = f"{times[name] * 1000:.0f} us"
        except Exception as error:  # it is not there, or not for this GPU
            told[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return min(times, key=times.get) if times else "loop", told
