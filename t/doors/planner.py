# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glake.planner: an engine in Python whose requests are planned by it has the same times, to the digit, as the one of
glakectl kv simulate; and what a program is told of mistakes.

    planner.py SOURCE PLUGIN [ENVIRONMENT]
"""

import json
import math
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../flow"))
sys.path.insert(0, sys.argv[1])
import tap  # noqa: E402

os.environ["GLAKE_LIBRARY_PATH"] = os.path.dirname(os.path.abspath(sys.argv[2]))
import glake  # noqa: E402
from glake import planner  # noqa: E402

LAYERS, TOKEN, MEMORY, LINK = 32, 512 << 10, 40000, 25
PROMPT_MS, PROMPT_US, PROMPT_NS, STEP_MS, STEP_US, STEP_NS = 1.0, 80.0, 1.5, 9.0, 20.0, 300.0
SCENE = dict(layers=LAYERS, layer_bytes=TOKEN // LAYERS, memory=MEMORY * TOKEN, out=LINK, back=LINK, requests=80, batch=256,
             prompt=(PROMPT_MS * 1e6, PROMPT_US * 1e3, PROMPT_NS), step=(STEP_MS * 1e6, STEP_US * 1e3, STEP_NS))


class Engine:
    """Computes one thing and copies one each way at a time, as lib/tool/simulate_engine.c does."""

    def __init__(self, requests, policy):
        self.plan = planner.Planner(policy=policy, **SCENE)
        self.todo, self.of, self.now = list(requests), {}, 0
        self.links, self.ends = ([], []), [math.inf, math.inf]
        self.work, self.done, self.layer, self.left, self.each = None, math.inf, 0, 0, 0

    def start(self, way):
        link = self.links[way]
        self.ends[way] = self.now + math.ceil(link[0][3] / LINK) if link else math.inf

    def queue(self, way, number, layer, layers):
        request = self.of[number]
        self.links[way].append((number, layer, layers, layers * (request["prompt"] + request["got"]) * TOKEN // LAYERS))
        if len(self.links[way]) == 1:
            self.start(way)

    def take_moves(self):
        for move in self.plan.moves(self.now):
            self.queue(int(move.back), move.id, move.layer, move.layers)

    def begin_layer(self):
        self.done = math.inf
        if self.layer - self.left < self.work.room:
            self.layer += 1
            self.done = self.now + self.each

    def begin(self):
        work = self.plan.next(self.now)
        self.work, self.done = (work if work.what else None), math.inf
        if work.what == planner.STEP:
            tokens = sum(self.of[i]["prompt"] + self.of[i]["got"] for i in work.batch)
            self.done = self.now + math.ceil(STEP_MS * 1e6 + STEP_US * 1e3 * len(work.batch) + STEP_NS * tokens)
        elif work.what == planner.PROMPT:
            n = float(self.of[work.id]["prompt"])
            self.layer = self.left = 0
            self.each = math.ceil((PROMPT_MS * 1e6 + PROMPT_US * 1e3 * n + PROMPT_NS * n * n) / LAYERS)
            self.begin_layer()

    def had(self, number):
        request = self.of[number]
        request["got"] += 1
        request.setdefault("first", self.now)
        if request["got"] == request["output"]:
            request["ends"] = self.now
            self.plan.end(self.now, number)

    def finish(self):
        work = self.work
        if work.what == planner.PROMPT:
            if self.layer <= work.away:
                self.queue(0, work.id, self.layer - 1, 1)
            if self.layer < LAYERS:
                self.begin_layer()
                return
        self.plan.done(self.now)
        self.work, self.done = None, math.inf
        for number in [work.id] if work.what == planner.PROMPT else work.batch:
            self.had(number)

    def arrive(self, way):
        number, layer, layers, _ = self.links[way].pop(0)
        self.plan.moved(self.now, number, layer, layers)
        self.start(way)
        if way == 0 and self.work and self.work.what == planner.PROMPT and self.work.id == number:
            self.left += layers
            if self.done == math.inf:
                self.begin_layer()

    def run(self):
        count = len(self.todo)
        while sum("ends" in request for request in self.of.values()) < count or self.todo:
            self.take_moves()
            if not self.work:
                self.begin()
            self.take_moves()
            arrival = round(self.todo[0]["arrival"] * 1e9) if self.todo else math.inf
            at = min(arrival, self.done, *self.ends)
            self.now = max(at, self.now)
            if arrival == at:
                request = self.todo.pop(0)
                number = self.plan.submit(self.now, request["prompt"], request["output"], first=3e9, token=200e6)
                self.of.pop(number, None)
                self.of[number] = request
            elif self.ends[0] == at:
                self.arrive(0)
            elif self.ends[1] == at:
                self.arrive(1)
            else:
                self.finish()


def check_against_the_tool():
    chance, at, rows = random.Random(5), 0, []
    for _ in range(80):
        at += chance.expovariate(0.3)
        rows.append({"arrival": round(at, 6), "prompt": chance.randint(1000, 16000), "output": chance.randint(2, 300)})
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write("\n".join(json.dumps(row) for row in rows))
        file.flush()
        run = subprocess.run(
            [os.environ["GLAKECTL"], "kv", "simulate", "-j", "-m", str(MEMORY), "-l", str(LINK),
             "--prompt-cost", f"{PROMPT_MS},{PROMPT_US},{PROMPT_NS}", "--step-cost", f"{STEP_MS},{STEP_US},{STEP_NS}",
             file.name], stdout=subprocess.PIPE, check=True)
    point = json.loads(run.stdout)["points"][0]
    for name, policy in (("layers", planner.LAYERS), ("first", planner.FIRST), ("swap", planner.SWAP)):
        requests = [dict(row, got=0) for row in rows]
        engine = Engine(requests, policy)
        engine.run()
        first = sum(r["first"] / 1e9 - r["arrival"] for r in requests) / len(requests)
        token = sum((r["ends"] - r["first"]) / 1e9 / (r["output"] - 1) for r in requests) / len(requests)
        tap.ok(abs(first - point[name]["first_token_s"]["mean"]) < 1e-6 and
               abs(token - point[name]["token_s"]["mean"]) < 1e-9, f"{name}: the same times as the tool's engine",
               (first, point[name]["first_token_s"]), (token, point[name]["token_s"]))
        told = engine.plan.figures()
        tap.equal((told["out"], told["back"], told["used"], told["running"]),
                  (point[name]["out_bytes"], point[name]["back_bytes"], 0, 0), "and the same bytes that moved")
        engine.plan.close()
    tap.ok(point["layers"]["away"] > 10 and point["swap"]["out_bytes"] > 0, "of which there were some")


def says(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except glake.GlakeError as error:
        return str(error)
    return "nothing"


def check_words():
    for wrong in ({"layers": 0}, {"layers": -1}, {"memory": 1 << 64}, {"out": 0}, {"prompt": (1, 2)}, {"policy": 7},
                  {"step": (-1, 0, 0)}, {"requests": 1 << 20}):
        tap.ok(says(planner.Planner, **{**SCENE, **wrong}) != "nothing", f"{wrong} is refused")
    with planner.Planner(**SCENE) as plan:
        tap.has(says(plan.submit, 0, 0, 1), "INVAL", "no prompt")
        tap.has(says(plan.submit, 0, -1, 1), "-1", "less than none")
        tap.has(says(plan.submit, 0, MEMORY, 1), "LIMIT", "one without room")
        number = plan.submit(0, 100, 5)
        tap.equal(plan.state(number)["stage"], planner.WAITS, "one waits")
        tap.equal(plan.next(0)[:3], (planner.PROMPT, number, 0), "and is computed")
        tap.has(says(plan.next, 0), "BUSY", "one thing at a time")
        plan.memory(0, 1 << 30)
        plan.done(5e6)
        tap.equal(plan.figures()["memory"], 1 << 30, "memory changes")
        tap.equal(plan.next(5e6).batch, [number], "it runs")
        plan.done(6e6)
        plan.end(6e6, number)
        tap.has(says(plan.moved, 0, number, 0, 1), "INVAL", "nothing of it moves")
        tap.equal(plan.moves(6e6), [], "nor is to move")
    tap.has(says(plan.next, 0), "closed", "and it is closed")
    tap.has(says(plan.moves, 0), "closed", "to all")


def main():
    tap.start()
    check_against_the_tool()
    check_words()
    tap.done()


main()
