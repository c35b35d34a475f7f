# SPDX-License-Identifier: LGPL-2.1-or-later
"""glakectl try: its models of PyTorch's allocators hold what PyTorch held when the jobs were recorded; glake's rows are replays."""
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from unittest import mock

from tap import DATA, done, equal, has, ok, start, tool

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lib/python"))
from glake import tool as of_python  # noqa: E402
MIB = 1 << 20
# what PyTorch 2.11 reserved on an H200, in MiB, and how far the model may be from it
RECORDED = {"opt13_N": ((40366, 0.01), (38992, 0.01)), "opt13b_LR": ((83072, 0.01), (61478, 0.01))}


def check_jobs():
    for job, wanted in RECORDED.items():
        run = tool("try", "--json", f"{DATA}/{job}.csv.xz")
        if not ok(run.returncode == 0, job, run.stderr):
            continue
        rows = json.loads(run.stdout)["allocators"]
        equal([row["model"] for row in rows], [True, True, False, False], "two models, two replays")
        for row, (mib, far) in zip(rows, wanted):
            ok(abs(row["reserved_bytes"] / MIB / mib - 1) < far, f"{row['name']} holds what it held", row)
    replayed = json.loads(tool("replay", "-q", "-d", "soft", "-r", "1", "--json", f"{DATA}/opt13b_LR.csv.xz").stdout)
    equal(rows[2]["reserved_bytes"], replayed["peak_reserved_bytes"], "glake's row is that of a replay")
    ok(rows[3]["reserved_over_live"] < 1.01, "and with a target of 1.005 less", rows[3])
    said = tool("try", f"{DATA}/opt13_N.csv.xz").stdout.decode()
    for part in ("opt13_N: 36.3 GiB live", "x1.086  (a model)", "glake, policy.target=1.005"):
        has(said, part, "for people")


def check_model():
    from glake.trial import model

    def held(*rows, grows=False):
        return model(rows, grows) / MIB
    equal(held(("a", 1, 0)), 2, "a small block takes 2 MiB")
    equal(held(("a", MIB, 0), ("b", MIB, 0)), 2, "of which there are two of 1 MiB")
    equal(held(("a", MIB, 0), ("b", MIB, 1)), 4, "of one stream")
    equal(held(("a", 3 * MIB, 0), ("b", 16 * MIB, 0)), 20, "larger ones share 20 MiB")
    equal(held(("a", 19 * MIB, 0)), 20, "and from 10 MiB on have what they need in 2 MiB")
    equal(held(("a", 19 * MIB, 0), ("b", MIB + 1, 0)), 40, "no more than 1 MiB is left over unsplit")
    equal(held(("a", 30 * MIB, 0), ("a", None, None), ("b", 40 * MIB, 0)), 70, "what was freed is no part of a larger one")
    equal(held(("a", 30 * MIB, 0), ("a", None, None), ("b", 40 * MIB, 0), grows=True), 40, "but where segments grow")
    equal(held(("a", 10 * MIB, 0), ("b", 10 * MIB, 0), ("a", None, None), ("b", None, None), ("c", 20 * MIB, 0), grows=True),
          20, "neighbours become one")
    equal(held(("x", None, None)), 0, "of what was never had nothing is freed")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def check_progress():
    wanted = "\r\033[Kx:  20 %, 4 s left\r\033[Kx:  60 %, 4 s left\r\033[K"
    for terminal, wanted in ((Terminal(), wanted), (io.StringIO(), "")):
        times = iter((0, 1, 1.05, 6, 6.05))
        with mock.patch.object(sys, "stderr", terminal), mock.patch.object(of_python, "time") as clock:
            clock.monotonic.side_effect = times
            rows = list(of_python.watched(range(10), "x", 2))
        equal((rows, terminal.getvalue()), (list(range(10)), wanted), "progress on a terminal" if wanted else "and none elsewhere")


def check_refused():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cut.csv")
        Path(path).write_text("Thread,Time,Action,Pointer,Size,Stream\n0,0,allocate,0x10,x,0\n", encoding="ascii")
        for word in (path, os.path.join(folder, "none.csv"), "/dev/null"):
            run = tool("try", word)
            equal((run.returncode, run.stdout), (1, b""), f"{os.path.basename(word)} is refused")
            ok(b"Traceback" not in run.stderr and run.stderr.startswith(b"glakectl: "), "in a sentence", run.stderr)
    run = tool("try", "-", stdin=b"Thread,Time,Action,Pointer,Size,Stream\n0,0,allocate,0x10,3000000,0\n")
    has(run.stdout.decode(), "standard input: 2.86 MiB live", "from standard input")


def main():
    start()
    check_model()
    check_jobs()
    check_progress()
    check_refused()
    done()


main()
