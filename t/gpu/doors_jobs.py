#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Jobs of other runtimes for doors.py, each in a process of its own, plain or on glake:

    doors_jobs.py NAME plain|glake

The last line is JSON: the result, which must not depend on whose memory it was, and on glake what
its counters say while the job holds `wanted` bytes and after it has freed them.
"""

import ctypes
import functools
import gc
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../lib/python")]
MIB = 1 << 20


class Watch:
    """glake's counters of GPU 0; of a plain run nothing."""

    def __init__(self, used):
        self.facts = {}
        if used:
            import glake
            self.glake = glake
        self.used = used

    def figures(self):
        row = self.glake.stats(0)
        return {name: row[name] for name in ("allocs", "frees", "live", "peak_live", "reserved")}

    def end(self, *streams):
        """Streams that are about to be destroyed."""
        for stream in streams if self.used else ():
            self.glake.stream_end(stream)

    def note(self, when, wanted=None):
        if self.used:
            self.facts[when] = self.figures()
            if wanted is not None:
                self.facts["wanted"] = wanted


def rmm(watch):
    """Buffers on eight streams behind two adaptors, copied from stream to stream."""
    import rmm
    from rmm.pylibrmm.stream import Stream

    if watch.used:
        watch.glake.use_rmm()
    base = rmm.mr.get_current_device_resource()
    counted = rmm.mr.StatisticsResourceAdaptor(base)
    rmm.mr.set_current_device_resource(rmm.mr.LimitingResourceAdaptor(counted, 1 << 30))
    watch.note("before")
    streams, total = [Stream() for _ in range(8)], 0
    for turn in range(40):
        data = [bytes([turn + i]) * ((i + 1) * 100_003) for i in range(8)]
        buffers = [rmm.DeviceBuffer.to_device(d, stream=s) for d, s in zip(data, streams)]
        for stream in streams:
            stream.synchronize()
        copies = [rmm.DeviceBuffer(size=b.size, stream=streams[(i + 1) % 8])
                  for i, b in enumerate(buffers)]
        for i, (copy, buffer) in enumerate(zip(copies, buffers)):
            copy.copy_from_device(buffer, stream=streams[(i + 1) % 8])
        if turn == 20:
            watch.note("during", 2 * sum(map(len, data)))
        total += sum(bytes(c.tobytes(stream=streams[(i + 1) % 8])) == d
                     for i, (c, d) in enumerate(zip(copies, data)))
        del buffer, buffers, copy, copies
    counts = counted.allocation_counts
    watch.end(*streams)
    rmm.mr.set_current_device_resource(base)
    watch.note("after")
    return [total, counts.current_bytes, counts.peak_count]


def cudf(watch):
    """A join and sums by group."""
    if watch.used:
        watch.glake.use_rmm()
    import cudf
    import numpy as np

    watch.note("before")
    rng = np.random.default_rng(1)
    left = cudf.DataFrame({"k": rng.integers(0, 200_000, 2_000_000), "a": np.arange(2_000_000)})
    right = cudf.DataFrame({"k": np.arange(200_000), "b": rng.integers(0, 9, 200_000)})
    watch.note("during", int(left.memory_usage().sum() + right.memory_usage().sum()))
    joined = left.merge(right, on="k")
    sums = joined.groupby("b")["a"].sum().sort_index().to_pandas()
    result = [len(joined), [int(v) for v in sums]]
    del left, right, joined
    gc.collect()
    watch.note("after")
    return result


def numba(watch):
    import numpy as np

    if not hasattr(np, "row_stack"):  # older numba wants what NumPy 2 has dropped
        np.row_stack = np.vstack
    if watch.used:
        os.environ["NUMBA_CUDA_MEMORY_MANAGER"] = "glake"
    from numba import cuda

    @cuda.jit
    def add(a, b, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = a[i] + 2 * b[i]

    cuda.current_context()
    watch.note("before")
    total = 0.0
    for turn in range(20):
        n = 1_000_003 + 1000 * turn
        stream = cuda.stream()
        a = cuda.to_device(np.arange(n, dtype=np.float64), stream=stream)
        b = cuda.to_device(np.full(n, turn, dtype=np.float64), stream=stream)
        out = cuda.device_array(n, dtype=np.float64, stream=stream)
        add[-(-n // 256), 256, stream](a, b, out)
        total += float(out.copy_to_host(stream=stream)[::7].sum())
        if turn == 10:
            watch.note("during", 3 * 8 * n)
    info = cuda.current_context().get_memory_info()
    del a, b, out
    gc.collect()
    cuda.current_context().memory_manager.deallocations.clear()
    watch.note("after")
    return [total, 0 < info.free < info.total]


def cuda_core(watch):
    """Buffers of the device's resource, filled and copied on streams of cuda.core."""
    from cuda.core import Device

    driver = ctypes.CDLL("libcuda.so.1")
    device = Device(0)
    device.set_current()
    if watch.used:
        device.memory_resource = watch.glake.memory_resource(0)
    watch.note("before")

    def on(stream):
        return ctypes.c_void_p(stream.__cuda_stream__()[1])

    def address(buffer):
        return ctypes.c_uint64(int(buffer.handle))

    streams, right = [device.create_stream() for _ in range(4)], 0
    for turn in range(40):
        size = 4 * MIB + 4096 * turn
        stream, other = streams[turn % 4], streams[(turn + 1) % 4]
        one = device.allocate(size, stream=stream)
        two = device.allocate(size, stream=stream)
        host = ctypes.create_string_buffer(size)
        good = not driver.cuMemsetD8Async(address(one), turn + 1, ctypes.c_size_t(size), on(stream))
        good &= not driver.cuMemcpyDtoDAsync_v2(address(two), address(one), ctypes.c_size_t(size),
                                                on(stream))
        stream.sync()
        good &= not driver.cuMemcpyDtoH_v2(host, address(two), ctypes.c_size_t(size))
        right += good and host.raw == bytes([turn + 1]) * size
        if turn == 20:
            watch.note("during", 2 * size)
        one.close(other)
        two.close()
    device.sync()
    watch.note("after")
    watch.end(*streams)
    return right


def warp(watch):
    import numpy as np
    import warp as wp

    wp.init()
    if watch.used:
        watch.glake.use_warp()
    watch.note("before")
    total = 0.0
    for turn in range(20):
        n = 1_000_003 + 1000 * turn
        with wp.ScopedStream(wp.Stream("cuda:0")) if turn % 2 else wp.ScopedDevice("cuda:0"):
            a = wp.array(np.arange(n, dtype=np.float32) % 17, dtype=float, device="cuda:0")
            out = wp.zeros(n, dtype=float, device="cuda:0")
            wp.launch(_warp_double(wp), dim=n, inputs=[a, out], device="cuda:0")
            total += float(out.numpy()[::7].sum())
            if turn == 10:
                watch.note("during", 2 * 4 * n)
    del a, out
    gc.collect()
    wp.synchronize()
    watch.note("after")
    return total


@functools.lru_cache(None)
def _warp_double(wp):
    """The kernel, which Warp reads from this file."""
    @wp.kernel
    def double(a: wp.array(dtype=float), out: wp.array(dtype=float)):
        i = wp.tid()
        out[i] = a[i] * 2.0

    return double


def onnxruntime(watch):
    """A model of two matrices, in the order of a stream and without one."""
    import numpy as np
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    rng, n = np.random.default_rng(1), 1024
    weights = [numpy_helper.from_array(rng.standard_normal((n, n), dtype=np.float32) / 32, name)
               for name in ("w", "v")]
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", n])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"]),
         helper.make_node("MatMul", ["z", "v"], ["out"])], "two", [value("x")], [value("out")],
        weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        raise RuntimeError("this onnxruntime has no CUDA provider")
    if watch.used:
        watch.note("before")
    options = watch.glake.ort_options(0) if watch.used else {"device_id": "0"}
    session = ort.InferenceSession(model.SerializeToString(),
                                   providers=[("CUDAExecutionProvider", options)])
    if session.get_providers()[0] != "CUDAExecutionProvider":
        raise RuntimeError("onnxruntime has fallen back to the CPU")
    total = 0.0
    for rows in (64, 1000, 333, 2048):
        x = (np.arange(rows * n, dtype=np.float32) % 13 / 13).reshape(rows, n)
        total += float(session.run(None, {"x": x})[0].astype(np.float64).sum())
    watch.note("during", 2 * 4 * n * n)
    del session
    gc.collect()
    watch.note("after")
    return round(total, 1)


JOBS = {"rmm": rmm, "cudf": cudf, "numba": numba, "cuda_core": cuda_core, "warp": warp,
        "onnxruntime": onnxruntime}

if __name__ == "__main__":
    seen = Watch(sys.argv[2] == "glake")
    outcome = JOBS[sys.argv[1]](seen)
    print("\n" + json.dumps({"result": outcome, "facts": seen.facts}))
