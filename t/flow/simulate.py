# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glakectl kv simulate: what the planner gains in the scene of the manual, that it loses nothing where there is room, what a
wrong model changes, requests of a file, and what is refused.
"""
import json
import os
import subprocess
import sys
import tempfile

from page import has_matplotlib
from tap import TOOL, done, equal, has, ok, skip, start, tool

PYTHON = os.path.join(os.path.dirname(__file__), "../../lib/python")
POLICIES = ("first", "swap", "layers")


def simulate(*arguments, text=None):
    return subprocess.run([TOOL, "kv", "simulate", *arguments], input=text, capture_output=True,
                          encoding="utf-8", check=False)


def points(*arguments, text=None):
    run = simulate("-j", *arguments, text=text)
    if not ok(run.returncode == 0, " ".join(arguments) or "by default", run.stderr):
        return None
    return json.loads(run.stdout)


def same(result):
    """Without what the processor took."""
    for point in result["points"]:
        for policy in POLICIES:
            for name in ("plan_us_mean", "plan_us_max"):
                point.get(policy, {}).pop(name, None)
    return result


def check_scene():
    result = points("-r", "x0.3,x0.5,x1.2,x1.5,x2")
    low, half, over, more, double = result["points"]
    first, layers = over["first"], over["layers"]
    times = first["first_token_s"]["mean"] / layers["first_token_s"]["mean"]
    ok(times >= 3, f"at 1.2 R the first token comes {times:.2f} times as early")
    ok(layers["late"] <= 0.72 * first["late"], f"{layers['late']} of 1000 are late, {first['late']} with first")
    ok(layers["tokens_per_s"] >= 0.97 * first["tokens_per_s"], "with as many tokens a second")
    equal(layers["late_token"], 0, "and no promise of tokens is broken")
    for point in (low, half):
        worst = max(point["layers"]["first_token_s"]["mean"] / point["first"]["first_token_s"]["mean"],
                    point["first"]["tokens_per_s"] / point["layers"]["tokens_per_s"])
        ok(worst <= 1.01, f"at {point['relative']} R nothing is lost", worst)
    for point in result["points"]:
        for policy in POLICIES:
            of = point[policy]
            ok(of["most_used_bytes"] <= result["memory_bytes"], "no more memory than there is")
            ok(of["samples"] and all(s["used_bytes"] <= of["most_used_bytes"] for s in of["samples"]), "in the samples too")
        equal(point["first"]["out_bytes"], 0, "with first nothing leaves")
    ok(more["layers"]["held_off"] > 0 and more["layers"]["late_token"] == 0, "at 1.5 R prompts wait for promises")
    equal(double["layers"]["late_token"], 0, "and at 2 R all are kept too")
    equal(same(points("-r", "x1.2"))["points"], same({"points": [over]})["points"], "the same each time, whatever came before")


def check_wrong_model():
    right = points("-r", "0.3", "-P", "layers")["points"][0]["layers"]
    for error in ("3", "0.333", "3,0.333", "0.333,3"):
        wrong = points("-r", "0.3", "-P", "layers", "--error", error)["points"][0]["layers"]
        equal(wrong["requests"], 1000, f"{error} times: all requests end")
        ok(wrong["tokens_per_s"] >= 0.97 * right["tokens_per_s"], "in the same time")
        ok(wrong["late_token"] <= right["late_token"] + 20, "with promises kept, but for the first ones")


def check_file():
    rows = [{"arrival": 2.5, "prompt": 1000, "output": 3}, {"arrival": 0, "prompt": 2000, "output": 1},
            {"arrival": 2.5, "prompt": 3000, "output": 40, "expected": 10}]
    text = "\n\n".join(json.dumps(row) for row in rows) + "\n"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "requests.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        result = points(path)
        equal(same(result)["points"], same(points("-", text=text))["points"], "from the standard input too")
        for policy in POLICIES:
            equal(result["points"][0][policy]["requests"], 3, "as many requests")
        has(simulate(path).stdout, path, "a table names the file")
        strange = os.path.join(os.fsencode(folder), b"\x1b[31m\xff")
        os.rename(path, strange)
        has(simulate(strange).stdout, f"of {folder}/?[31m?\n", "as a terminal takes it")
    for line, why in (("{}", "line 2"), ("x", "line 2"), ('{"arrival": -1, "prompt": 1, "output": 1}', "no request"),
                      ('{"arrival": 0, "prompt": "1", "output": 1}', "no request"),
                      ('{"arrival": 0, "prompt": 1e99, "output": 1}', "no request"), ("[1]", "no request")):
        run = simulate("-", text=json.dumps(rows[0]) + "\n" + line + "\n")
        equal((run.returncode, run.stdout), (1, ""), line)
        has(run.stderr, why, "is named")
    has(simulate("-", text="").stderr, "no requests", "nothing in it")
    run = subprocess.run(["sh", "-c", r"printf '\377\n' | LC_ALL=C.UTF-8 $0 kv simulate -; $0 kv simulate - <&-", TOOL], capture_output=True,
                         encoding="utf-8", check=False)
    equal(run.stderr.count("\n"), 2, "no text, and no standard input")
    has(run.stderr, "-, line 1: it is no request", "  one is told of")
    has(run.stderr, "-: Bad file descriptor", "  and the other")
    has(simulate("/nowhere").stderr, "/nowhere", "a file that is not there")
    run = simulate("-", text='{"arrival": 0, "prompt": 50000, "output": 1}\n')
    equal(run.returncode, 1, "a request that has no room")
    has(run.stderr, "more than", "is told")


def check_picture():
    """By matplotlib, where it is there."""
    if not has_matplotlib():
        skip("a picture", "python3 has no matplotlib, of Debian's package python3-matplotlib")
        return
    with tempfile.TemporaryDirectory() as folder:
        path, picture = os.path.join(folder, "result.json"), os.path.join(folder, "picture.svg")
        for rates in ("0.1", "0.1,0.2"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(simulate("-j", "-n", "20", "-r", rates).stdout)
            run = tool("draw", path, "-o", picture)
            equal((run.returncode, run.stderr), (0, b""), "a picture")
            has(open(picture, encoding="utf-8").read(), "</svg>", "which is whole")


def check_traces():
    """Where a request is alone, and a token of its prompt takes 1 ms or a step does, times are lengths."""
    for name, median, mean, answer in (("azure-conv", 1020, 1155, 211), ("azure-code", 1469, 2048, 27.9), ("mooncake", 6909, 12035, 343)):
        times = points("-n", "4000", "-p", name, "-g", "1", "-m", "200000", "-r", "0.00001", "-P", "first", "--prompt-cost", "0,1000,0")
        row = times["points"][0]["first"]["first_token_s"]
        ok(abs(row["p50"] * 1e3 / median - 1) < 0.1 and abs(row["mean"] * 1e3 / mean - 1) < 0.1, f"{name}: prompts", row, median, mean)
        times = points("-n", "4000", "-p", "1", "-g", name, "-m", "200000", "-r", "1000", "-P", "first")
        row = times["points"][0]
        tokens = row["first"]["tokens_per_s"] * row["first"]["ends_s"] / 4000
        ok(abs(tokens / answer - 1) < 0.1, f"{name}: answers", tokens, answer)
        has(simulate("-n", "9", "-p", name, "-r", "1", "-m", "200000").stdout, f"as of {name}", "it is told")


def check_words():
    equal(simulate("--help").returncode, 0, "help")
    for wrong in (["-r", "x0"], ["-r", "1,"], ["-a", "burst:0"], ["-p", "uniform:5-2"], ["-p", "0"], ["-g", "azure"], ["-M", "9b"],
                  ["-H", "tpu"], ["-P", "best"], ["-m", "0"], ["-l", "0"], ["--prompt-cost", "1,2"], ["--step-cost", "-1,0,0"],
                  ["-T", "nan"], ["-F", "0"], ["-n", "0"], ["-m", "9" * 400], ["--step-cost", "1e308,0,0"], ["a", "b"], ["-s", "x"]):
        run = simulate(*wrong)
        equal((run.returncode, run.stdout), (2, ""), " ".join(wrong))
        has(run.stderr, "glakectl", "is told")
    for rate in ("1e-12", "1e-320"):
        run = simulate("-n", "10", "-r", rate)
        equal((run.returncode, run.stdout, run.stderr.count("\n")), (1, "", 1), "arrivals after all times")
        has(run.stderr, "requests a second the last one would come after", "are told of")
    result = points("-n", "1", "-r", "1", "-g", "1", "--prompt-cost", "0,0,0", "--step-cost", "0,0,0")
    equal(result["points"][0]["first"]["late"], 0, "where nothing takes time")
    result = points("-n", "50", "-a", "burst:10", "-p", "lognormal:2000,1", "-g", "uniform:1-200", "-M", "70b", "-H", "h200",
                    "-m", "30GiB", "-l", "55,50", "-r", "2", "-s", "9", "--prompt-cost", "1,30,0.5", "--step-cost", "20,10,50",
                    "-T", "0", "-b", "8")
    equal((result["layers"], result["memory_bytes"], result["seed"], result["back_gb_per_s"]), (80, 30 << 30, 9, 50), "all of it")
    table = simulate("-n", "30", "-r", "0.1").stdout
    for policy in POLICIES:
        has(table, policy, "a table for people")


def main():
    start()
    check_scene()
    check_wrong_model()
    check_file()
    check_picture()
    check_traces()
    check_words()
    done()


main()
