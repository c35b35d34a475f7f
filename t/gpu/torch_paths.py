#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
One GPU's copies over the links of all, by what PyTorch's profiler tells of each piece, and what a training step on
the GPUs that lend theirs loses meanwhile.

    torch_paths.py [--sizes MIB,MIB] [--json FILE] [-o PICTURE.svg] [--suspend GIB] [--train ROUNDS]

Per size and way: GB/s by the clock, and for each path its pieces, how long its link was busy, when it began and when it
ended, in us from the first piece on. The picture has a row for each hop of each path. --suspend: so much in blocks of
64 MiB is suspended and resumed five times, beside plain copies over the links of all GPUs; all of it is looked at
afterwards. --train: steps a second of a model on every other GPU, of one process with the copies, first alone, then
while GPU 0 copies to and fro all the time, by turns. It takes two GPUs; pictures take matplotlib.
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
import threading
import time

MIB = 1 << 20
WAYS = ("down", "up")
LICENCE = b"<!-- SPDX-License-" + b"Identifier: LGPL-2.1-or-later -->\n"


def copier(torch, glake):
    """copy(way, MiB): queues one on a stream of GPU 0."""
    from glake import library
    most = 1024 * MIB
    host = torch.empty(most, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(most, dtype=torch.uint8, device="cuda:0")
    stream = torch.cuda.Stream(0)

    def copy(way, size):
        ends = (there, host) if way == "down" else (host, there)
        library.call("glake_copy", *(ctypes.c_void_p(end.data_ptr()) for end in ends), ctypes.c_size_t(size * MIB),
                     ctypes.c_void_p(stream.cuda_stream), 0, None)
    copy.wait, copy.host, copy.there = stream.synchronize, host, there
    return copy


def rate(copy, way, size):
    """GB/s, the best of seven."""
    best = 1e9
    for _ in range(7):
        begun = time.perf_counter()
        copy(way, size)
        copy.wait()
        best = min(best, time.perf_counter() - begun)
    return size * MIB / best / 1e9


def pieces(torch, act):
    """(GPU, stream, what, begin, end) of each copy of the second of two times, in us."""
    from torch.profiler import profile, ProfilerActivity
    with profile(activities=[ProfilerActivity.CUDA]) as told:
        for _ in range(2):  # what profiling makes at first would be in the way
            act()
    found = [(e.device_index(), e.device_resource_id(), e.name(), e.start_ns(), e.duration_ns())
             for e in told.profiler.kineto_results.events() if e.name().startswith("Memcpy")]
    found = sorted(found, key=lambda row: row[3])[len(found) // 2:]
    first = found[0][3]
    return [(gpu, stream, name.split()[1], (start - first) / 1e3, (start - first + long) / 1e3)
            for gpu, stream, name, start, long in found]


def paths_of(rows):
    """Per hop: pieces, us that it was busy, its begin and end."""
    hops = {}
    for row in rows:
        hops.setdefault(row[:3], []).append(row)
    result = []
    for (gpu, stream, what), of in sorted(hops.items()):
        busy = sum(row[4] - row[3] for row in of)
        result.append({"gpu": gpu, "stream": stream, "what": what, "pieces": len(of),
                       "busy": round(busy, 1), "begin": round(of[0][3], 1), "end": round(max(row[4] for row in of), 1)})
    return result


def draw(cases, path):
    """A panel for each case, in it a row for each hop of each path."""
    from glake import pictures
    figure = pictures.new(960, 170 * len(cases))
    figure.subplots_adjust(left=0.1, hspace=0.6)
    for number, case in enumerate(cases):
        ax = figure.add_subplot(len(cases), 1, number + 1)
        hops = sorted({row[:3] for row in case["rows"]})
        for hop in hops:
            ax.broken_barh([(row[3], row[4] - row[3]) for row in case["rows"] if row[:3] == hop],
                           (hops.index(hop) - 0.4, 0.8),
                           facecolor=pictures.RESERVED if hop[2] == "PtoP" else pictures.LIVE,
                           edgecolor=pictures.GROUND, linewidth=0.4)
        ax.set_yticks(range(len(hops)), [f"GPU {gpu} {what}" for gpu, _, what in hops])
        ax.set_title(f"{case['size']} MiB {case['way']}, us: {case['rate']:.0f} GB/s")
        ax.invert_yaxis()
    kind = path.rpartition(".")[2]
    with open(path, "wb") as file:
        file.write(LICENCE if kind == "svg" else b"")
        pictures.save(figure, "paths", file.write, kind)


def plain(torch, copy):
    """GB/s of plain copies of a quarter of a GiB and more by all GPUs at once, down and up."""
    count = torch.cuda.device_count()
    part = copy.host.numel() // count
    blocks = [torch.empty(part, dtype=torch.uint8, device=f"cuda:{gpu}") for gpu in range(count)]
    parts, best = [copy.host[gpu * part:(gpu + 1) * part] for gpu in range(count)], {}
    for way in WAYS:
        for _ in range(5):
            begun = time.perf_counter()
            for block, there in zip(blocks, parts):
                (block if way == "down" else there).copy_(there if way == "down" else block, non_blocking=True)
            for gpu in range(count):
                torch.cuda.synchronize(gpu)
            best[way] = max(best.get(way, 0), part * count / (time.perf_counter() - begun) / 1e9)
    return best


def suspended(torch, glake, copy, gib):
    """Each of five times away and back, GB/s, and what part of the plain copies' that is."""
    blocks = [torch.full((16 * MIB,), number * 2654435761 % 2**31, dtype=torch.int32, device="cuda:0")
              for number in range(gib * 16)]
    rows, of = [], plain(torch, copy)
    print(f"plain copies of all GPUs: {of['down']:.1f} GB/s down, {of['up']:.1f} up", flush=True)
    for turn in range(5):
        torch.cuda.synchronize()
        times = [time.perf_counter()]
        for call in (glake.suspend, glake.resume):
            call(0)
            times.append(time.perf_counter())
        took = [after - before for before, after in zip(times, times[1:])]
        up, down = (gib * 2**30 / each / 1e9 for each in took)
        rows.append({"suspend": took[0], "resume": took[1]})
        print(f"suspend {turn}: {gib} GiB away in {took[0]:.3f} s, {up:.1f} GB/s, {up / of['up']:.2f} of the plain "
              f"copies; back in {took[1]:.3f} s, {down:.1f} GB/s, {down / of['down']:.2f}", flush=True)
    for hop in paths_of(pieces(torch, lambda: (glake.suspend(0), glake.resume(0)))):
        print("  " + ", ".join(f"{key} {value}" for key, value in hop.items()))
    wrong = sum(not bool((block == number * 2654435761 % 2**31).all()) for number, block in enumerate(blocks))
    print(f"blocks that are not what they were: {wrong}")
    if wrong:
        sys.exit(1)
    return rows


def trainers(torch, gpus, stop, done):
    """A model of matrices on each of the GPUs, a thread each, until it is told to stop."""
    def work(gpu):
        with torch.cuda.device(gpu):
            model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096, dtype=torch.bfloat16) for _ in range(12))).cuda()
            steps = torch.optim.AdamW(model.parameters(), lr=1e-5)
            rows = torch.randn(8192, 4096, dtype=torch.bfloat16, device="cuda")
            while not stop.is_set():
                model(rows).square().mean().backward()
                steps.step()
                steps.zero_grad()
                torch.cuda.synchronize()
                done[gpu] += 1
    threads = [threading.Thread(target=work, args=(gpu,)) for gpu in gpus]
    for thread in threads:
        thread.start()
    return threads


def train(torch, copy, rounds):
    """Steps a second of all other GPUs, without copies and with them, round by round."""
    gpus, stop = range(1, torch.cuda.device_count()), threading.Event()
    done = [0] * torch.cuda.device_count()
    threads, rows = trainers(torch, gpus, stop, done), []
    while min(done[1:]) < 5 and all(thread.is_alive() for thread in threads):  # the first steps make much
        time.sleep(0.1)

    def during(seconds, busy):
        begun, before, copied = time.perf_counter(), sum(done), 0
        while time.perf_counter() - begun < seconds:
            if not busy:
                time.sleep(0.01)
                continue
            for way in WAYS:
                copy(way, 1024)
            copy.wait()
            copied += 2
        took = time.perf_counter() - begun
        return (sum(done) - before) / took, copied * 1024 * MIB / took / 1e9
    for turn in range(rounds):
        quiet = during(1.5, False)[0]
        busy, carried = during(1.5, True)
        rows.append({"alone": quiet, "beside": busy, "ratio": busy / quiet, "copied": carried})
        print(f"train {turn}: {quiet:.1f} steps/s alone, {busy:.1f} beside copies of {carried:.0f} GB/s: "
              f"{busy / quiet:.3f}", flush=True)
    stop.set()
    for thread in threads:
        thread.join()
    ratios = sorted(row["ratio"] for row in rows)
    print(f"train: {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}) of the speed without copies")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().split("\n", maxsplit=1)[0])
    parser.add_argument("--sizes", default="16,64,256,1024")
    parser.add_argument("--json")
    parser.add_argument("-o", "--output")
    parser.add_argument("--suspend", type=int, default=0)
    parser.add_argument("--train", type=int, default=0)
    args = parser.parse_args()
    import torch
    if torch.cuda.device_count() < 2:
        sys.exit("torch_paths.py: it takes two GPUs")
    import glake
    glake.use(settings={} if "GLAKE_IO_LEND" in os.environ else {"io.lend": "all"})
    copy, cases = copier(torch, glake), []
    copy.host.random_(0, 255)
    kept = copy.host.clone()
    for size in (int(word) for word in args.sizes.split(",") if word):
        for way in WAYS:
            copy(way, size)
            copy.wait()
            if way == "up" and not torch.equal(copy.host[:size * MIB], kept[:size * MIB]):
                sys.exit(f"torch_paths.py: {size} MiB came back as something else")
            case = {"size": size, "way": way, "rate": rate(copy, way, size)}
            case["rows"] = pieces(torch, lambda way=way, size=size: (copy(way, size), copy.wait()))
            cases.append(case)
            print(f"{size} MiB {way}: {case['rate']:.1f} GB/s", flush=True)
            for hop in paths_of(case["rows"]):
                print("  " + ", ".join(f"{key} {value}" for key, value in hop.items()))
    away = suspended(torch, glake, copy, args.suspend) if args.suspend else []
    trained = train(torch, copy, args.train) if args.train else []
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"cases": cases, "suspended": away, "train": trained}, file)
    if args.output and cases:
        draw(cases, args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
