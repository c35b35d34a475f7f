#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Timelines: what glakectl replay writes, what t/gpu/allocators.py adds of other allocators, and the
picture that t/gpu/timeline.py draws of it. PyTorch is a stand-in, whose allocator reserves twice of
what is live, or a page more where its segments are said to be expandable.
"""
import csv
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

from tap import DATA, HUNG, TOOL, done, equal, has, ok, skip, start, tool

GPU = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../gpu")
SVG = "{http://www.w3.org/2000/svg}"
MIB = 1 << 20
# Action, block, size: two streams, a block that stays, one that is asked for again
JOB = [("allocate", 1, 5 * MIB), ("allocate", 2, 7 * MIB), ("free", 1, 5 * MIB),
       ("allocate", 3, 3 * MIB), ("free", 2, 7 * MIB), ("allocate", 1, 5 * MIB)]

HEADER = r"""
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
typedef void *cudaStream_t;
namespace c10::cuda::CUDACachingAllocator {
struct Stat { int64_t current; };
struct DeviceStats { Stat reserved_bytes[3]; };
struct Allocator {
	std::map<void *, size_t> blocks;
	int64_t live = 0, most = 0;
	void *raw_alloc_with_stream(size_t size, cudaStream_t)
	{
		void *block = std::malloc(1);
		live += static_cast<int64_t>(blocks[block] = size);
		most = live > most ? live : most;
		return block;
	}
	void raw_delete(void *block)
	{
		live -= static_cast<int64_t>(blocks[block]);
		blocks.erase(block);
		std::free(block);
	}
	DeviceStats getDeviceStats(int)
	{
		const char *how = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
		bool grows = how && std::strstr(how, "expandable");
		return {{{grows ? live + 2097152 : 2 * live}, {0}, {0}}};
	}
};
inline Allocator *get() { static Allocator one; return &one; }
}
"""
TORCH = """
class _C:
    _GLIBCXX_USE_CXX11_ABI = True
class _Stream:
    cuda_stream = 0
class cuda:
    init = empty_cache = reset_peak_memory_stats = staticmethod(lambda: None)
    current_stream = Stream = staticmethod(_Stream)
    max_memory_reserved = staticmethod(lambda: 24 << 20)
def zeros(*args, **more):
    pass
"""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def trace(folder):
    lines = ["Thread,Time,Action,Pointer,Size,Stream"]
    lines += [f"1,00:00:00.{at:06},{action},0x{block}000,{size},{block % 2}"
              for at, (action, block, size) in enumerate(JOB, start=1)]
    return write(os.path.join(folder, "made.csv"), "\n".join(lines) + "\n")


def live():
    sizes, after = {}, []
    for action, block, size in JOB:
        sizes[block] = size if action == "allocate" else 0
        after.append(sum(sizes.values()))
    return after


def check_replay(folder):
    path = os.path.join(folder, "replay.csv")
    run = tool("replay", "-q", "-d", "soft", "--timeline", path, trace(folder))
    equal(run.returncode, 0, "replay writes a timeline")
    got = rows(path)
    equal(list(got[0]), ["pass", "event", "seconds", "live", "reserved"], "its columns")
    equal([r["pass"] for r in got], ["1"] * 6 + ["3"] * 6, "the first pass and the last")
    equal([int(r["live"]) for r in got], live() * 2, "what was live after each event")
    ok(all(int(r["reserved"]) >= int(r["live"]) for r in got), "reserved is not below it", got)
    equal(max(int(r["reserved"]) for r in got[6:]), max(int(r["reserved"]) for r in got[:6]),
          "and the last pass holds what the first did")
    tool("replay", "-q", "-d", "soft", "-r", "1", "--timeline", path, trace(folder))
    equal([r["pass"] for r in rows(path)], ["1"] * 6, "one pass is written once")
    tool("replay", "-q", "-d", "soft", "-r", "2", "-T", path, f"{DATA}/detect.csv.xz")
    got = rows(path)
    ok(300 <= len(got) / 2 <= 512, "a long job is written in slices", len(got))
    run = tool("replay", "-q", "-d", "soft", "--timeline", "/nowhere/x", trace(folder))
    equal(run.returncode, 1, "a timeline that cannot be written")
    has(run.stderr.decode(), "/nowhere/x: No such file or directory", "is named")
    equal(tool("replay", "-T", "x", "one", "two").returncode, 2, "it is of one trace")


def allocators(folder, *more):
    env = dict(os.environ, PYTHONPATH=os.path.join(folder, "python"), PYTHONDONTWRITEBYTECODE="1")
    return subprocess.run(
        [sys.executable, os.path.join(GPU, "allocators.py"), "--tool", TOOL, "--driver", "soft",
         *more, trace(folder)], env=env, capture_output=True, text=True, timeout=300, check=False)


def stand_in(folder):
    """A package torch that allocators.py finds what it needs in; False without a compiler."""
    compiler = shutil.which("g++")
    if not compiler:
        return False
    torch = os.path.join(folder, "python/torch")
    write(f"{torch}/__init__.py", TORCH)
    write(f"{torch}/utils/__init__.py", "")
    write(f"{torch}/utils/cpp_extension.py",
          f"def include_paths():\n    return [{torch + '/include'!r}]\n")
    write(f"{torch}/include/c10/cuda/CUDACachingAllocator.h", HEADER)
    empty = write(f"{torch}/lib/empty.cc", "")
    for name in ("c10", "c10_cuda"):
        subprocess.run([compiler, "-shared", "-o", f"{torch}/lib/lib{name}.so", empty], check=True)
    return True


def check_allocators(folder):
    path = os.path.join(folder, "all.csv")
    whole = stand_in(folder)
    run = allocators(folder, "--timeline", path)
    equal(run.returncode, 0, "allocators.py writes a timeline")
    got = rows(path)
    equal(list(got[0]), ["job", "pass", "event", "seconds", "live", "glake", "PyTorch",
                         "PyTorch expandable", "PyTorch cudaMallocAsync"], "its columns")
    equal([(r["job"], r["pass"]) for r in got], [("made", "1")] * 6 + [("made", "3")] * 6,
          "both passes of the job")
    if not whole:
        skip("PyTorch's allocators in it", "no g++ is installed")
        return path
    equal([int(r["PyTorch"]) for r in got], [2 * n for n in live() * 2], "what PyTorch reserved")
    equal([int(r["PyTorch expandable"]) for r in got], [n + 2 * MIB for n in live() * 2],
          "and with its expandable segments")
    table = run.stdout.splitlines()[2:]
    equal([line[12:38].strip() for line in table],
          ["glake", "PyTorch", "PyTorch expandable", "PyTorch cudaMallocAsync"], "the table too")
    equal(table, [line for line in table if len(line.split()[-6:]) == 6], "has its figures")
    return path


def draw(*args):
    return subprocess.run([sys.executable, "-B", os.path.join(GPU, "timeline.py"), *args],
                          capture_output=True, text=True, timeout=HUNG, check=False)


def check_picture(folder):
    """Of made-up figures: PyTorch runs out of memory in the last pass."""
    path, out = os.path.join(folder, "drawn.csv"), os.path.join(folder, "drawn.svg")
    lines = ["job,pass,event,seconds,live,glake,PyTorch,PyTorch expandable"]
    for number in (1, 3):
        for at, (used, most) in enumerate(((4, 5), (10, 10), (2, 10))):
            torch = 12 << 30 if number == 1 else ""
            lines.append(f"a<b,{number},{at},{at}.5,{used << 30},{(most << 30) + MIB},{torch},"
                         f"{11 << 30}")
    write(path, "\n".join(lines) + "\n")
    run = draw(path, "-o", out)
    equal((run.returncode, run.stderr), (0, ""), "timeline.py draws")
    root = xml.parse(out).getroot()
    equal(root[0].text, "Live and reserved GPU memory of a<b", "a picture with a title")
    said = [t.text for t in root.iter(SVG + "text")]
    for part in ("a<b: live and reserved GPU memory", "GiB", "10.0 GiB", "12.0 GiB, 1.200 of live",
                 "11.0 GiB, 1.100 of live", "10.0 GiB, 1.000 of live",
                 "first pass, 2.5 s as recorded", "last pass, 2.5 s as recorded"):
        ok(part in said, f"it says: {part}", said)
    paths = [p.get("class") for p in root.iter(SVG + "path")]
    equal(paths, ["area", "live", "a0", "a1", "a2", "area", "live", "a1", "a2"],
          "each curve of each pass, save of what is not known")
    drawn = next(p.get("d") for p in root.iter(SVG + "path") if p.get("class") == "a1")
    levels = [step.split("H")[0] for step in drawn.split("V")[1:]]
    equal((len(levels), len(set(levels))), (3, 1), "a level is drawn as a level")
    ys = [float(t.get("y")) for t in root.iter(SVG + "text") if t.text in ("0", "2", "12")]
    equal(len(ys), 3, "ticks from 0 on, above all that is drawn")
    with open(out, encoding="utf-8") as file:
        text = file.read()
    ok("<script" not in text and "http" not in text.replace("http://www.w3.org/2000/svg", ""),
       "nothing but the picture is in the file")
    has(text, "prefers-color-scheme: dark", "it is made for dark ground too")
    draw(path, "-o", out, "--first", "--allocator", "glake")
    paths = [p.get("class") for p in xml.parse(out).getroot().iter(SVG + "path")]
    equal(paths, ["area", "live", "a0"], "the first pass alone, of one allocator")
    for args, words in ((("--job", "c"), "has no job c"), (("--allocator", "d"), "has no allocator d")):
        run = draw(path, "-o", out, *args)
        ok(run.returncode == 1 and words in run.stderr, f"refused: {words}", run.stderr)
    run = draw(__file__, "-o", out)
    ok(run.returncode == 1 and "is no timeline" in run.stderr, "another file is refused", run.stderr)


def main():
    start()
    with tempfile.TemporaryDirectory() as folder:
        check_replay(folder)
        path = check_allocators(folder)
        run = draw(path, "-o", os.path.join(folder, "all.svg"))
        equal(run.returncode, 0, "timeline.py draws what allocators.py wrote")
        check_picture(folder)
    done()


main()
