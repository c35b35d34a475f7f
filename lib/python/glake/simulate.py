# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl kv simulate: requests, hardware and a model by options, policies side by side. What a model takes follows from its
sizes and the hardware's data sheet: a prompt by arithmetic at half of the peak, a step by reading weights and caches at three
quarters of the memory's rate. Measured figures go in by --prompt-cost and --step-cost. The engine is one of C
(lib/kv/engine_main.c), which is given a scene and requests as they lie in memory, and gives them back with what came of them.
"""

import bisect
import ctypes
import json
import math
import re
import sys

from . import planner, tool
from .records import many

HELP = """\
usage: glakectl kv simulate [OPTION]... [REQUESTS]

Simulates a serving engine whose requests are planned by the library (glake/planner.h),
under several policies side by side: first come, first served (first), the same with
whole requests that leave for those who wait (swap), and layers that leave as they are
computed and come back before the first step (layers). No GPU is needed.

REQUESTS is a file with a line of JSON for each, as in
  {"arrival": 0.5, "prompt": 1000, "output": 100}
with the arrival in seconds and lengths in tokens, and "expected" output tokens where
the planner is told another number; '-' is the standard input. Without one they are made:

  -n, --requests N       so many (1000)
  -r, --rate R[,R]...    a second; or x0.5, of R, the rate at which first come, first served
                         leaves the first objective on the mean (x1.2)
  -a, --arrivals WAY     poisson, or burst:N, N at a time (poisson)
  -p, --prompt LENGTH    tokens: N, uniform:FROM-TO, lognormal:MEDIAN,SIGMA, or as they
                         are in a public trace, azure-conv, azure-code or mooncake
                         (uniform:1024-16384)
  -g, --output LENGTH    likewise (512)
  -s, --seed N           of the random numbers (1)

  -M, --model NAME       7b, 8b, 13b, 70b (7b: 32 layers, 512 KiB a token)
  -H, --hardware NAME    a100, h100, h200, l20 (a100)
  -m, --memory TOKENS    whose caches have room; or bytes, as 20GiB (40000)
  -l, --link OUT[,BACK]  GB/s that the link to the host carries (by the hardware: 25)
      --prompt-cost A,B,C  of a prompt: ms, us a token, ns a token squared
      --step-cost A,B,C    of a step: ms, us a sequence, ns a token of its cache
      --error F[,G]      the planner believes that prompts take F and steps G times what
                         they take (1)
  -b, --batch N          sequences of a step at most (256)

  -F, --first S          objective of the first token, in seconds (3)
  -T, --token MS         and of a token, in ms (200)
  -P, --policy NAME      first, swap or layers alone; repeatable
  -j, --json             for programs, with samples of the memory over time
  -h, --help             show this help
"""
TOKENS, REQUESTS, RATES, AT_ONCE, WORD = 1 << 28, 10_000_000, 64, 65536, (1 << 64) - 1
NUMBER, LAST = 1e9, 9e9  # what a number is at most; and a time in seconds, which is an int64_t in ns
POLICIES = {"first": planner.FIRST, "swap": planner.SWAP, "layers": planner.LAYERS}  # in the order in which they are shown
# parameters, of 2 bytes; hidden size; layers; bytes a token of keys and values in all of them
MODELS = {"7b": (6.74e9, 4096, 32, 512 << 10), "8b": (8.03e9, 4096, 32, 128 << 10), "13b": (13.0e9, 5120, 40, 800 << 10),
          "70b": (70.6e9, 8192, 80, 320 << 10)}
# dense FP16 TFLOP/s, TB/s of its memory, GB/s of the link, by the data sheets; the link as copies reach it
HARDWARE = {"a100": (312, 2.0, 25), "h100": (989, 3.35, 55), "h200": (989, 4.8, 55), "l20": (119.5, 0.864, 25)}

# Tokens of prompts and answers that so many percent of a trace's requests do not exceed. The two are drawn each by itself:
# their correlation in these traces is below 0.1.
PERCENTS = (0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.9, 100)
TRACES = {
    # Azure LLM inference trace 2023 (Azure/AzurePublicDataset, CC BY 4.0), conversations and code
    "azure-conv": ((2, 181, 207, 387, 403, 703, 1020, 1071, 1130, 1315, 2734, 4083, 4098, 4142, 6212, 14050),
                   (7, 41, 54, 77, 91, 103, 129, 177, 384, 400, 424, 451, 540, 601, 954, 1000)),
    "azure-code": ((3, 75, 147, 386, 770, 1075, 1469, 1909, 2433, 3192, 5186, 7302, 7436, 7436, 7437, 7437),
                   (6, 6, 7, 8, 9, 11, 13, 16, 20, 29, 55, 90, 172, 252, 824, 1899)),
    # conversation_trace of FAST '25 (kvcache-ai/Mooncake, Apache 2.0)
    "mooncake": ((891, 901, 964, 1662, 3263, 4993, 6909, 9570, 13196, 17869, 27367, 39549, 66425, 85401, 121301, 126195),
                 (1, 10, 24, 100, 213, 291, 350, 399, 447, 504, 597, 698, 891, 1120, 2000, 2000)),
}


# As lib/kv/engine_main.c has them.

class Request(ctypes.Structure):
    _fields_ = [*many(ctypes.c_uint32, "prompt output expected got away none"),
                *many(ctypes.c_int64, "arrives first second ends")]


class Scene(ctypes.Structure):
    _fields_ = [("sz", ctypes.c_uint64), ("planner", planner._Options),
                *many(ctypes.c_double, "prompt prompt_token prompt_square step step_sequence step_token out back"),
                *many(ctypes.c_int64, "first token"), ("count", ctypes.c_uint64)]


class Sample(ctypes.Structure):
    _fields_ = [("at", ctypes.c_int64), *many(ctypes.c_uint64, "used host"), *many(ctypes.c_uint32, "waiting running away none")]


class Result(ctypes.Structure):
    _fields_ = [("planner", planner._Figures), *many(ctypes.c_uint64, "most_used samples"),
                *many(ctypes.c_double, "plan_us_mean plan_us_most"), ("sample", Sample * 256)]


def wrong(text):
    return tool.usage("kv", text)


def numbers(option, text, least, fewest, most):
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not fewest <= len(found) <= most or not all(least <= one <= NUMBER for one in found):
        raise wrong(f"--{option} {text}: it is {'three numbers, 0 or more' if most == 3 else 'one number or two' if most == 2 else 'a number'}")
    return found


class Numbers:
    """Random numbers of a seed: splitmix64."""

    def __init__(self, seed):
        self.state = seed

    def part(self):
        """Above 0, at most 1."""
        z = self.state = (self.state + 0x9e3779b97f4a7c15) & WORD
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9 & WORD
        z = (z ^ z >> 27) * 0x94d049bb133111eb & WORD
        return ((z ^ z >> 31) // 2048 + 1) / 2 ** 53

    def normal(self):
        radius = math.sqrt(-2 * math.log(self.part()))
        return radius * math.cos(2 * math.pi * self.part())


def lengths(option, text):
    """How lengths are drawn, and how that is told."""
    if text in TRACES:
        quantile = TRACES[text][option == "output"]

        def of_trace(of):
            percent = 100 * of.part()
            i = max(1, bisect.bisect_left(PERCENTS, percent))
            part = (percent - PERCENTS[i - 1]) / (PERCENTS[i] - PERCENTS[i - 1])
            return quantile[i - 1] + part * (quantile[i] - quantile[i - 1])
        return of_trace, f"as of {text}"
    number = r"([0-9.]+(?:[eE][+-]?\d+)?)"
    match = re.fullmatch(f"uniform:{number}-{number}|lognormal:{number},{number}|{number}", text)
    try:
        a, b, median, sigma, tokens = (word and float(word) for word in match.groups()) if match else [None] * 5
    except ValueError:
        match = None
    if not match:
        raise wrong(f"--{option} {text}: it is a number, uniform:FROM-TO, lognormal:MEDIAN,SIGMA, azure-conv, azure-code or mooncake")
    if not 1 <= (a or median or tokens or 0) <= TOKENS or (b is not None and not a <= b <= TOKENS) or (sigma or 0) > 10:
        raise wrong(f"--{option} {text}: lengths are 1 to {TOKENS} tokens, a sigma 0 to 10")
    if a:
        return lambda of: a + math.floor((b - a + 1) * (1 - of.part())), f"{a:.0f} to {b:.0f}, uniform"
    if median:
        return lambda of: median * math.exp(sigma * of.normal()), f"log-normal, median {median:.0f}, sigma {sigma:g}"
    return lambda of: tokens, f"{tokens:.0f}"


def made(count, burst, prompt, output, seed):
    """Requests at one a second. Each row of numbers is its own, so that lengths stay where arrivals change."""
    arrivals, prompts, outputs = (Numbers(seed ^ row) for row in (0, 0x70726f6d7074, 0x6f7574707574))
    rows, now = [], 0.0
    for i in range(count):
        if i % burst == 0:
            now -= math.log(arrivals.part()) * burst
        tokens = [int(min(max(1, way(of)), TOKENS)) for way, of in ((prompt, prompts), (output, outputs))]
        rows.append((now, *tokens, tokens[1]))
    return rows


def read(path):
    """Requests of a file, in the order in which they come."""
    rows = []
    try:
        with open(0 if path == "-" else path, encoding="utf-8", errors="replace", closefd=path != "-") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    given = json.loads(line)
                    found = [given["arrival"], given["prompt"], given["output"], given.get("expected", given["output"])]
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    found = [None]
                if not all(type(one) in (int, float) and low <= one <= high for one, low, high in
                           zip(found, (0, 1, 1, 1), (1e9, TOKENS, TOKENS, TOKENS))):
                    raise tool.Failure(f"glakectl: {path}, line {number}: it is no request, as "
                                       '{"arrival": 0.5, "prompt": 1000, "output": 100}')
                if len(rows) == REQUESTS:
                    raise tool.Failure(f"glakectl: {path}: more than {REQUESTS} requests")
                rows.append((float(found[0]), *map(int, found[1:])))
    except OSError as error:
        raise tool.Failure(f"glakectl: {path}: {error.strerror}") from error
    if not rows:
        raise tool.Failure(f"glakectl: {path}: it has no requests")
    return sorted(rows, key=lambda row: row[0])


def spread(values):
    if not values:
        return dict.fromkeys(("mean", "p50", "p99", "max"), 0)
    values = sorted(values)
    last = len(values) - 1
    return {"mean": sum(values) / len(values), "p50": values[last // 2], "p99": values[last * 99 // 100], "max": values[-1]}


class Simulation:
    """What was asked for, and runs of it."""

    def __init__(self, given, file):
        def last(name, default):
            return given.get(name, [default])[-1]

        def count(name, default, most):
            text = last(name, default)
            if not re.fullmatch(r"\d{1,8}", text) or not 1 <= int(text) <= most:
                raise wrong(f"--{name} {text}: it is 1 to {most}")
            return int(text)

        def one_of(name, default, among):
            if last(name, default) not in among:
                raise wrong(f"there is no {name} '{last(name, default)}'")
            return last(name, default)

        self.file, self.seed = file, last("seed", "1")
        if not re.fullmatch(r"\d{1,19}", self.seed):
            raise wrong(f"--seed {self.seed}: it is a number")
        self.seed = int(self.seed)
        self.model, self.hardware = one_of("model", "7b", MODELS), one_of("hardware", "a100", HARDWARE)
        self.policies = [name for name in POLICIES if name in (given.get("policy") or POLICIES)]
        for name in given.get("policy", ()):
            if name not in POLICIES:
                raise wrong(f"there is no policy '{name}'")
        self._set_rates(last("rate", "x1.2"))
        arrivals = re.fullmatch(r"poisson|burst:(\d{1,7})", last("arrivals", "poisson"))
        self.burst = int(arrivals[1] or 1) if arrivals else 0
        if not 1 <= self.burst <= 1000000:
            raise wrong(f"--arrivals {last('arrivals', '')}: poisson, or burst:N")
        self.first, = numbers("first", last("first", "3"), 0, 1, 1)
        self.token = numbers("token", last("token", "200"), 0, 1, 1)[0] / 1e3
        if max(self.first, self.token) > 1e6:
            raise wrong("an objective is 1000000 s at most")
        batch, requests = count("batch", "256", AT_ONCE), count("requests", "1000", REQUESTS)
        prompt, output = lengths("prompt", last("prompt", "uniform:1024-16384")), lengths("output", last("output", "512"))
        self.told = f"prompt {prompt[1]}; output {output[1]}"
        self._set_scene(given, last("memory", "40000"), batch)
        self.rows = read(file) if file else made(requests, self.burst, prompt[0], output[0], self.seed)
        self.scene.planner.requests = min(len(self.rows), AT_ONCE)
        self.knee = 0

    def _set_rates(self, text):
        words = text.split(",")
        try:
            self.rates = [(float(word.removeprefix("x")), word.startswith("x")) for word in words]
        except ValueError:
            self.rates = []
        if not 1 <= len(self.rates) <= RATES or not all(0 < rate < math.inf for rate, _ in self.rates):
            raise wrong(f"--rate: up to {RATES} numbers above 0, as 0.5,1 or x0.5,x1")

    def _set_scene(self, given, memory, batch):
        parameters, hidden, layers, token = MODELS[self.model]
        tera_flops, tera_bytes, link = HARDWARE[self.hardware]
        flops, bytes_ns = tera_flops * 1e3 * 0.5, tera_bytes * 1e3 * 0.75
        scene = self.scene = Scene(sz=ctypes.sizeof(Scene), planner=planner._Options())
        # keys with queries and weights with values, of the half that is not masked
        prompt = [0, 2 * parameters / flops, 2 * layers * hidden / flops]
        step = [2 * parameters / bytes_ns, 0, token / bytes_ns]
        if "prompt-cost" in given:
            a, b, c = numbers("prompt-cost", given["prompt-cost"][-1], 0, 3, 3)
            prompt = [a * 1e6, b * 1e3, c]
        if "step-cost" in given:
            a, b, c = numbers("step-cost", given["step-cost"][-1], 0, 3, 3)
            step = [a * 1e6, b * 1e3, c]
        links = numbers("link", given.get("link", [str(link)])[-1], 1e-6, 1, 2)
        errors = numbers("error", given.get("error", ["1"])[-1], 1e-6, 1, 2)
        for name, value, error in zip("prompt prompt_token prompt_square step step_sequence step_token".split(), prompt + step,
                                      3 * [errors[0]] + 3 * [errors[-1]]):
            setattr(scene, name, value)
            setattr(scene.planner, name, value * error)
        scene.out = scene.planner.out = links[0]
        scene.back = scene.planner.back = links[-1]
        size = tool.size(memory)
        if not size or size * token >= 1 << 63:
            raise wrong(f"--memory {memory}: tokens, or bytes as 20GiB")
        scene.planner.memory = size * token if memory.isdigit() else size
        scene.planner.layers, scene.planner.layer_bytes, scene.planner.batch = layers, token // layers, batch
        scene.first, scene.token = round(self.first * 1e9), round(self.token * 1e9)

    def run(self, policy, scale):
        """What came of the requests, whose arrivals are so many times as far apart."""
        if not self.rows[-1][0] * scale <= LAST:
            raise tool.Failure(f"glakectl: at {1 / scale:.4g} requests a second the last one would come after {LAST:.0f} s")
        requests = (Request * len(self.rows))()
        for request, (arrives, prompt, output, expected) in zip(requests, self.rows):
            request.prompt, request.output, request.expected, request.arrives = prompt, output, expected, round(arrives * scale * 1e9)
        self.scene.planner.policy, self.scene.count = POLICIES[policy], len(self.rows)
        status, said = tool.run("engine", (), bytes(self.scene) + bytes(requests))
        if status or len(said) != ctypes.sizeof(Result) + ctypes.sizeof(requests):
            raise tool.Failure(status=status or 1)
        result = Result.from_buffer_copy(said)
        return self._sum(result, (Request * len(self.rows)).from_buffer_copy(said, ctypes.sizeof(Result)))

    def _sum(self, result, requests):
        first = [(one.first - one.arrives) / 1e9 for one in requests]
        token = [(one.ends - one.first) / 1e9 / (one.output - 1) if one.output > 1 else 0 for one in requests]
        late = [self.first > 0 and one > self.first for one in first]
        slow = [self.token > 0 and one > self.token for one in token]
        ends, figures = max(one.ends for one in requests) / 1e9, result.planner
        return {
            "requests": len(requests), "first_token_s": spread(first),
            "token_s": spread([value for value, one in zip(token, requests) if one.output > 1]),
            "gap_s": spread([(one.second - one.first) / 1e9 for one in requests if one.output > 1]),
            "late_first": sum(late), "late_token": sum(slow), "late": sum(map(max, late, slow)),
            "tokens_per_s": sum(one.output for one in requests) / max(ends - requests[0].arrives / 1e9, 1e-9), "ends_s": ends,
            "away": sum(one.away for one in requests), "most_used_bytes": result.most_used, "out_bytes": figures.out,
            "back_bytes": figures.back, **{name: getattr(figures, name) for name in
                                           ("held_off", "renegotiated", "layers_back", "layers_late")},
            "plan_us_mean": result.plan_us_mean, "plan_us_max": result.plan_us_most,
            "samples": [{"at_s": one.at / 1e9, "used_bytes": one.used, "host_bytes": one.host, "waiting": one.waiting,
                         "running": one.running, "away": one.away} for one in result.sample[:result.samples]]}

    def _find_knee(self):
        """The rate at which the mean first token of first come, first served comes after its objective."""
        low, high = 1e-4, 1e4
        for _ in tool.watched(range(16), "the rate x1", 1):
            middle = math.sqrt(low * high)
            if self.run("first", 1 / middle)["first_token_s"]["mean"] > self.first:
                high = middle
            else:
                low = middle
        if low < 2e-4:
            raise tool.Failure("glakectl: one request at a time takes longer than the first objective: name rates by --rate")
        return low

    def points(self):
        if self.file:
            rate = len(self.rows) / (self.rows[-1][0] + 1e-9)
            return [{"rate": rate, **{name: self.run(name, 1) for name in self.policies}}]
        if any(relative for _, relative in self.rates):
            if not self.first:
                raise wrong("without a first objective rates have no x")
            self.knee = self._find_knee()
        found = []
        for rate, relative in tool.watched(self.rates, "rates", 1):
            point = {"rate": rate * self.knee, "relative": rate} if relative else {"rate": rate}
            point.update((name, self.run(name, 1 / point["rate"])) for name in self.policies)
            found.append(point)
        return found

    def report(self, points):
        """For people."""
        scene, token = self.scene, MODELS[self.model][3]
        print(f"model      {self.model}: {scene.planner.layers} layers, {tool.bytes_text(token)} a token\n"
              f"memory     {tool.bytes_text(scene.planner.memory)}, {scene.planner.memory // token} tokens\n"
              f"hardware   {self.hardware}: link {scene.out:.4g} GB/s to the host, {scene.back:.4g} back\n"
              f"prompt     {scene.prompt / 1e6:.4g} ms, {scene.prompt_token / 1e3:.4g} us a token, "
              f"{scene.prompt_square:.4g} ns a token squared\n"
              f"step       {scene.step / 1e6:.4g} ms, {scene.step_sequence / 1e3:.4g} us a sequence, "
              f"{scene.step_token:.4g} ns a token of its cache")
        print(f"requests   of {tool.plain(self.file)}" if self.file else f"requests   {len(self.rows)}, seed {self.seed}, "
              f"{'bursts at random times' if self.burst > 1 else 'Poisson'}; {self.told}")
        print(f"objectives first token {self.first:g} s, {self.token * 1e3:g} ms a token")
        if self.knee:
            print(f"R          {self.knee:.4g} requests a second: there first come, first served leaves {self.first:g} s on the mean")
        print(f"\n{'':24} {'FIRST TOKEN, s':>26} {'A TOKEN, ms':>23} {'GAP, s':>17} {'LATE':>6} {'TOKENS':>8} {'AWAY':>6}\n"
              f"{'':8} {'RATE':>7}  {'POLICY':6} {'mean':>8} {'p50':>8} {'p99':>8} {'mean':>7} {'p50':>7} {'p99':>7} {'mean':>8} "
              f"{'p99':>8} {'%':>6} {'a second':>8} {'%':>6}")
        for point in points:
            for name in self.policies:
                of, rate = point[name], f"{point['relative']:6.2f} R" if "relative" in point else " " * 8
                first, tokens, gap = of["first_token_s"], of["token_s"], of["gap_s"]
                print(f"{rate} {point['rate']:7.3f}  {name:6} {first['mean']:8.2f} {first['p50']:8.2f} {first['p99']:8.2f} "
                      f"{tokens['mean'] * 1e3:7.1f} {tokens['p50'] * 1e3:7.1f} {tokens['p99'] * 1e3:7.1f} {gap['mean']:8.2f} "
                      f"{gap['p99']:8.2f} {100 * of['late'] / of['requests']:6.1f} {of['tokens_per_s']:8.0f} "
                      f"{100 * of['away'] / of['requests']:6.1f}")
        print("\nA TOKEN is a request's mean, with the gap after its first token in it; LATE are requests that\n"
              "missed an objective; AWAY are those of whose prompt layers left.")

    def report_json(self, points):
        scene, token = self.scene, MODELS[self.model][3]
        print(json.dumps({
            "model": self.model, "hardware": self.hardware, "layers": scene.planner.layers, "token_bytes": token,
            "memory_bytes": scene.planner.memory, "out_gb_per_s": scene.out, "back_gb_per_s": scene.back,
            "objective_first_s": self.first, "objective_token_s": self.token,
            **({"file": self.file} if self.file else {"seed": self.seed}),
            **({"knee_rate": self.knee} if self.knee else {}), "points": points}, indent=2))


def run(words):
    """The command; its exit status."""
    given, rest = tool.options("kv", HELP, words, fewest=0)
    simulation = Simulation(given, rest[0] if rest else None)
    points = simulation.points()
    (simulation.report_json if "json" in given else simulation.report)(points)
    return 0
