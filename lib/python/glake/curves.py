# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What glakectl kv simulate --json found, for glakectl draw: time to the first token, time of a token, requests that
missed an objective and tokens a second over the rate, by policy, where there are several rates; else memory and
requests over time.
"""

from . import pictures, tool

POLICIES = {"first": ("first come, first served", "#8a8a8a"), "swap": ("whole requests leave", "#c98a1b"),
            "layers": ("layers leave", "#1b6fc9")}


def rows_of(result, policy):
    """The points that have a policy, by rate."""
    return sorted((point for point in result["points"] if policy in point), key=lambda point: point["rate"])


def draw_rates(result, figure):
    """Four figures over the rate."""
    scale = result.get("knee_rate", 0)
    figures = (("first token, s, mean", lambda of: of["first_token_s"]["mean"], "log"),
               ("a token, ms, 99 of 100 within", lambda of: of["token_s"]["p99"] * 1e3, "linear"),
               ("late, % of the requests", lambda of: 100 * of["late"] / of["requests"], "linear"),
               ("tokens a second", lambda of: of["tokens_per_s"], "linear"))
    for place, (name, value, way) in zip(figure.subplots(2, 2).flat, figures):
        for policy, (text, colour) in POLICIES.items():
            rows = rows_of(result, policy)
            place.plot([row["rate"] / (scale or 1) for row in rows], [value(row[policy]) for row in rows],
                       label=text, color=colour, marker="o", markersize=3)
        place.set_title(name, loc="left", fontsize=9)
        place.set_yscale(way)
        place.set_xlabel("rate, of R" if scale else "requests a second", fontsize=8)
        place.tick_params(labelsize=8)
        place.grid(alpha=0.3)
    figure.axes[0].axhline(result["objective_first_s"], color="black", linewidth=0.8, linestyle=":")
    figure.axes[1].axhline(result["objective_token_s"] * 1e3, color="black", linewidth=0.8, linestyle=":")
    figure.axes[0].legend(fontsize=8, frameon=False)


def draw_time(result, figure):
    """Memory and requests over time, of the one rate there is."""
    point = result["points"][0]
    policies = [policy for policy in POLICIES if policy in point]
    places = figure.subplots(len(policies), 2, squeeze=False)
    for (left, right), policy in zip(places, policies):
        samples = point[policy]["samples"]
        at = [sample["at_s"] for sample in samples]
        left.set_title(f"{POLICIES[policy][0]}: GiB", loc="left", fontsize=9)
        left.plot(at, [sample["used_bytes"] / 2**30 for sample in samples], label="GPU", color="#1b6fc9")
        left.plot(at, [sample["host_bytes"] / 2**30 for sample in samples], label="host", color="#c98a1b")
        right.set_title("requests", loc="left", fontsize=9)
        for name, colour in (("waiting", "#8a8a8a"), ("away", "#c98a1b"), ("running", "#1b6fc9")):
            right.plot(at, [sample[name] for sample in samples], label=name, color=colour)
        for place in (left, right):
            place.legend(fontsize=7, frameon=False)
            place.set_xlabel("s", fontsize=8)
            place.tick_params(labelsize=8)
            place.grid(alpha=0.3)


def figure(result):
    """A picture of a result."""
    tool.pictures()
    from matplotlib.figure import Figure
    many = len(result["points"]) > 1
    height = 6 if many else 2.6 * sum(policy in result["points"][0] for policy in POLICIES)
    made = Figure(figsize=(9, height), layout="constrained")
    made.suptitle(f"{pictures.text_of(result['model'])}, {pictures.text_of(result['hardware'])}, {result['memory_bytes'] / 2**30:.1f} GiB for caches", fontsize=10)
    (draw_rates if many else draw_time)(result, made)
    return made
