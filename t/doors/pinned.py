# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Pinned memory of the host under the real PyTorch, on the software device: tensors of
glake.pinned_empty(), and the allocator of pinned memory that glake.use_pinned() gives PyTorch, which
is asked from C++, since PyTorch pins nothing where it sees no GPU.

    pinned.py SOURCE PLUGIN [ENVIRONMENT]

PyTorch is looked for in a Python environment, or in this interpreter.
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../flow"))
import tap  # noqa: E402

SOURCE, PLUGIN = map(os.path.abspath, sys.argv[1:3])
PACKAGES = os.path.join(sys.argv[3], "bin/python3") if sys.argv[3:] else sys.executable
PACKAGES = PACKAGES if os.path.exists(PACKAGES) else sys.executable

PROGRAM = '''
import ctypes, gc, json, os, sys, torch, glake
def figures():
    row = glake.stats(0)
    return [row["host_pool_" + name] for name in ("live", "given", "blocks", "waiting")]
def raised(call, *arguments, **named):
    try:
        return "nothing: %r" % (call(*arguments, **named),)
    except Exception as error:
        return "%s: %s" % (type(error).__name__, error)
facts = {}
'''
TENSORS = PROGRAM + '''
x = glake.pinned_empty(1000, 77, dtype=torch.bfloat16)
facts["first"] = [list(x.shape), str(x.dtype), x.data_ptr() % 64, figures()]
x.copy_(torch.arange(77000, dtype=torch.float32).view(1000, 77))
facts["sum"] = x.float().sum().item() == torch.arange(77000).to(torch.bfloat16).float().sum().item()
view = x[7:9].t()
del x
gc.collect()
facts["view"] = figures()
del view
gc.collect()
facts["gone"] = figures()
facts["shapes"] = [list(glake.pinned_empty(*s).shape) for s in ((0, 4), ((2, 3),), ([5],), ())]
facts["bad"] = [raised(glake.pinned_empty, -1), raised(glake.pinned_empty, "a"),
                raised(glake.pinned_empty, 4, device=9), raised(glake.pinned_empty, 1 << 62),
                raised(glake.pinned_use, torch.empty(4))]
y = glake.pinned_empty(100)
glake.pinned_use(y, 0, 1)
del y
gc.collect()
facts["used"] = figures()[:3]
z = glake.pinned_empty(100).fill_(5)
pid = os.fork()
if not pid:
    del z
    gc.collect()
    os._exit(0)
facts["fork"] = [os.waitpid(pid, 0)[1], z.sum().item()]
print("FACTS " + json.dumps(facts))
'''
PROBE = '''
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <cstring>
static at::DataPtr kept;
static int waited;
struct Gpu final : c10::impl::DeviceGuardImplInterface {
	using Device = c10::Device;
	using Stream = c10::Stream;
	c10::DeviceType type() const override { return at::kCUDA; }
	Device exchangeDevice(Device to) const override { return to; }
	Device getDevice() const override { return Device(at::kCUDA, 0); }
	void setDevice(Device) const override {}
	void uncheckedSetDevice(Device) const noexcept override {}
	Stream getStream(Device of) const noexcept override { return Stream(Stream::DEFAULT, of); }
	Stream exchangeStream(Stream to) const noexcept override { return to; }
	c10::DeviceIndex deviceCount() const noexcept override { return 1; }
	void *getStreamNativeHandle(const Stream) const { return nullptr; }
	void synchronizeStream(const Stream &) const override { waited++; }
};
/* What record_event says, and 10 if the stream was waited for. */
extern "C" int probe_event(int own)
{
	static char other[64];
	static Gpu gpu;
	c10::Stream stream(c10::Stream::DEFAULT, c10::Device(at::kCUDA, 0));
	c10::impl::device_guard_impl_registry[(int)at::kCUDA] = &gpu;
	waited = 0;
	void *ptr = own ? kept.get() : other;
	bool known = at::getHostAllocator(at::kCUDA)->record_event(ptr, ptr, stream);
	return known + 10 * waited;
}
extern "C" long probe_take(size_t size)
{
	kept = at::getHostAllocator(at::kCUDA)->allocate(size);
	memset(kept.get(), 7, size);
	return (long)kept.get();
}
extern "C" int probe_context() { return kept.get() == kept.get_context(); }
extern "C" void probe_give() { kept = at::DataPtr(); }
extern "C" void probe_empty() { at::getHostAllocator(at::kCUDA)->empty_cache(); }
extern "C" int probe_refused()
{
	try {
		at::getHostAllocator(at::kCUDA)->allocate((size_t)1 << 60);
	} catch (const c10::OutOfMemoryError &) {
		return 1;
	}
	return 0;
}
'''
REPLACED = PROGRAM + '''
glake.use_pinned()
glake.use_pinned()
probe = ctypes.CDLL(sys.argv[1])
probe.probe_take.restype, probe.probe_take.argtypes = ctypes.c_long, [ctypes.c_size_t]
address = probe.probe_take(1000001)
facts["taken"] = [figures(), probe.probe_context(), address % 64]
probe.probe_give()
facts["given"] = figures()
probe.probe_empty()
facts["empty"] = glake.stats(0)["host_pool_held"]
facts["refused"] = probe.probe_refused()
print("FACTS " + json.dumps(facts))
'''

EVENTS = PROGRAM + '''
glake.use_pinned()
probe = ctypes.CDLL(sys.argv[1])
probe.probe_take.argtypes = [ctypes.c_size_t]
probe.probe_take(100)
print("FACTS " + json.dumps([probe.probe_event(1), probe.probe_event(0)]))
'''


def run(code, folder, *arguments, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GLAKE_", "PYTHON"))}
    env.update(GLAKE_DRIVER_BACKEND="soft", GLAKE_LIBRARY_PATH=os.path.dirname(PLUGIN),
               GLAKE_SOFT_GPUS="2", GLAKE_HOST_PIECE="8MiB", GLAKE_HOST_LIMIT="64MiB",
               PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=SOURCE, HOME=folder,
               XDG_CACHE_HOME=folder, CUDA_VISIBLE_DEVICES="", **more)
    done = subprocess.run([PACKAGES, "-c", code, *arguments], env=env, capture_output=True,
                          text=True, timeout=280, check=False)
    found = [line[6:] for line in done.stdout.splitlines() if line.startswith("FACTS ")]
    if done.returncode or not found:
        return {"failed": done.returncode, "said": done.stderr}
    return json.loads(found[0])


def tensors(folder):
    found = run(TENSORS, folder)
    if not tap.ok("failed" not in found, "tensors", found):
        return
    tap.equal(found["first"], [[1000, 77], "torch.bfloat16", 0, [154000, 154048, 1, 0]],
              "a tensor has memory of its own size")
    tap.ok(found["sum"], "which holds what it should")
    tap.equal(found["view"], [154000, 154048, 1, 0], "a view keeps it")
    tap.equal(found["gone"], [0, 0, 0, 0], "and gives it back")
    tap.equal(found["shapes"], [[0, 4], [2, 3], [5], []], "shapes as torch.empty takes them")
    for said, want in zip(found["bad"], ("is no shape", "is no shape", "there is no GPU 9",
                                         "glake_host_alloc", "no live block")):
        tap.has(said, want, f"refused: {want}")
    tap.equal(found["used"], [0, 0, 0], "a stream of another GPU")
    tap.equal(found["fork"], [0, 500], "a child lets go of what is not its own")


def replaced(folder):
    home = subprocess.run([PACKAGES, "-c", "import torch; print(torch.__path__[0])"],
                          capture_output=True, text=True, check=True).stdout.strip()
    source, probe = os.path.join(folder, "probe.cc"), os.path.join(folder, "probe.so")
    with open(source, "w", encoding="utf-8") as file:
        file.write(PROBE)
    try:
        subprocess.run(["c++", "-std=c++17", "-w", "-O0", "-shared", "-fPIC", f"-I{home}/include",
                        source, "-o", probe, f"-L{home}/lib", "-ltorch_cpu", "-lc10"],
                       check=True, capture_output=True)
    except (OSError, subprocess.SubprocessError) as error:
        tap.skip("the allocator of pinned memory", f"no compiler for PyTorch's headers: {error}")
        return
    found = run(REPLACED, folder, probe)
    if not tap.ok("failed" not in found, "use_pinned", found):
        return
    tap.equal(found["taken"], [[1000001, 1000064, 1, 0], 1, 0],
              "what PyTorch asks its allocator for is a block of its size")
    tap.equal(found["given"], [0, 0, 0, 0], "and goes back")
    tap.equal(found["empty"], 0, "empty_cache gives the memory to the system")
    tap.equal(found["refused"], 1, "no memory raises torch.OutOfMemoryError")
    tap.equal(run(EVENTS, folder, probe), [1, 0], "a stream is noted for what is its own")
    tap.equal(run(EVENTS, folder, probe, GLAKE_DRIVER_FAULT="stream_owner:from=1:err=EIO"), [11, 0],
              "one that cannot be noted is waited for, and none for memory of others")


def main():
    tap.start()
    torch = subprocess.run([PACKAGES, "-c", "import torch"], capture_output=True, check=False)
    if torch.returncode:
        print("1..0 # SKIP no PyTorch here: see t/doors/meson.build")
        return
    with tempfile.TemporaryDirectory() as folder:
        tensors(folder)
        replaced(folder)
    tap.done()


main()
