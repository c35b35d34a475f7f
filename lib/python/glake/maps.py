# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The address space of a process as glakectl map --json tells it, as a figure: of each GPU rows of cells, in each of
which what has most of it shows. Addresses without memory that would fill rows are left out.
"""

from . import pictures, tool

STATES = ("hole", "live", "away", "quick", "idle", "limbo", "rest", "alias", "leaving")
SIZES = ((4 << 10, "to 4 KiB"), (64 << 10, "to 64 KiB"), (1 << 20, "to 1 MiB"), (8 << 20, "to 8 MiB"),
         (64 << 20, "to 64 MiB"), (512 << 20, "to 512 MiB"), (1 << 64, "above"))
COLUMNS, ROWS, STREAMS = 216, 48, 8
NOTHING, UNUSED = "no memory", "used by no block"


def kind_of(run, by, streams):
    """What a run is shown as."""
    if by == "state":
        return NOTHING if run["state"] == "hole" else run["state"]
    if run["state"] not in ("live", "away") or "bare" in run.get("flags", ()):
        return NOTHING if run["state"] in ("hole", "alias", "leaving") else UNUSED
    if by == "size":
        return next(name for most, name in SIZES if run["asked"] <= most)
    return streams.get(run["stream"], "other streams")


def _kinds(runs, by):
    """The kind of each run, and all kinds in the order of a legend with their bytes."""
    of = {}
    for run in runs:
        if run["state"] in ("live", "away"):
            of[run["stream"]] = of.get(run["stream"], 0) + run["size"]
    streams = {handle: f"stream {handle:x}" if handle else "default stream"
               for handle in sorted(of, key=lambda handle: (-of[handle], handle))[:STREAMS]}
    kinds = [kind_of(run, by, streams) for run in runs]
    order = [NOTHING, UNUSED, *STATES, *streams.values(), "other streams", *(name for _, name in SIZES)]
    bytes_of = dict.fromkeys(sorted(set(kinds), key=order.index), 0)
    for run, kind in zip(runs, kinds):
        bytes_of[kind] += run["size"]
    return kinds, bytes_of


def _number(kind, kinds):
    """The colour of a kind: that of a state is its own, others have those that are left by turns."""
    fixed = {NOTHING: 0, UNUSED: 8, **{state: i for i, state in enumerate(STATES) if i}}
    return fixed[kind] if kind in fixed else (1, 3, 5, 2, 6, 7, 4, 9, 10)[
        [one for one in kinds if one not in fixed].index(kind) % 9]


def _stretches(runs, kinds, row):
    """Lists of (begin, end, kind), apart where addresses without memory would fill rows."""
    lists = []
    for run, kind in zip(runs, kinds):
        begin, end = run["address"], run["address"] + run["size"]
        if kind == NOTHING and end - begin >= row:
            lists.append([])
        elif not lists or (lists[-1] and lists[-1][-1][1] != begin):
            lists.append([(begin, end, kind)])
        else:
            lists[-1].append((begin, end, kind))
    return [one for one in lists if one]


def rows_of(runs, kinds):
    """(address, [(first cell, cells, kind)]) of each row, and the bytes of a cell."""
    held = sum(abs(run["size"]) for run, kind in zip(runs, kinds) if kind != NOTHING)
    cell = 4096
    while held / cell / COLUMNS > ROWS - 8:
        cell *= 2
    row, rows = cell * COLUMNS, []
    for stretch in _stretches(runs, kinds, row):
        most = {}  # cell -> {kind: bytes}
        first = stretch[0][0] // cell * cell
        for begin, end, kind in stretch:
            for at in range((begin - first) // cell, (end - first - 1) // cell + 1):
                part = min(end, first + (at + 1) * cell) - max(begin, first + at * cell)
                cells = most.setdefault(at, {})
                cells[kind] = cells.get(kind, 0) + part
        for at in range(0, max(most) + 1, COLUMNS):
            parts = []
            for i in range(at, min(at + COLUMNS, max(most) + 1)):
                kind = max(most[i], key=most[i].get) if i in most else NOTHING
                if parts and parts[-1][2] == kind:
                    parts[-1][1] += 1
                else:
                    parts.append([i - at, 1, kind])
            rows.append((first + at * cell, parts))
    return rows, cell


def figure(found, by="state"):
    """The picture of all GPUs."""
    shown = []
    for gpu in found["gpus"]:
        kinds, bytes_of = _kinds(gpu["runs"], by)
        shown.append((gpu, bytes_of, *rows_of(gpu["runs"], kinds)))
    heights = [44 + 15 * len(rows) + 20 * -(-len(kinds) // 4) for _, kinds, rows, _ in shown]
    height = sum(heights) + 50
    made = pictures.new(1000, height)
    made.suptitle(f"Address space of process {found['pid']}, {pictures.text_of(found['program'])}", x=0.02, y=1 - 8 / height,
                  ha="left", va="top", fontsize=13)
    top = height - 40
    for (gpu, kinds, rows, cell), room in zip(shown, heights):
        axes = made.add_axes((0.12, (top - 34 - 15 * len(rows)) / height, 0.86, 15 * len(rows) / height))
        axes.set_xlim(0, COLUMNS)
        axes.set_ylim(max(len(rows), 1), 0)
        axes.axis("off")
        live = sum(run["asked"] for run in gpu["runs"] if run["state"] in ("live", "away") and "asked" in run)
        axes.set_title(f"Context {gpu['context']}, GPU {gpu['gpu']}: {tool.bytes_text(gpu['reserved_bytes'])} held, "
                       f"{tool.bytes_text(live)} live; a row is {tool.bytes_text(cell * COLUMNS)}", fontsize=10)
        for kind in kinds:
            number = _number(kind, list(kinds))
            colour = pictures.COLOURS[f"k{number}"][0]
            places = [(i, first, cells) for i, (_, parts) in enumerate(rows) for first, cells, one in parts if one == kind]
            for i in sorted({i for i, _, _ in places}):
                axes.broken_barh([(first, cells) for j, first, cells in places if j == i], (i + 0.04, 0.92), color=colour,
                                 linewidth=0, gid=f"{gpu['context']}-{gpu['gpu']}-{i}-k{number}")
            axes.plot([], [], marker="s", linestyle="", color=colour, label=f"{kind}, {tool.bytes_text(kinds[kind])}")
        for i, (address, _) in enumerate(rows):
            axes.text(-1, i + 0.5, f"{address:x}", ha="right", va="center", fontsize=8, color=pictures.QUIET)
        axes.legend(loc="upper left", bbox_to_anchor=(0, 0), ncols=4, fontsize=8)
        top -= room
    return made
