# SPDX-License-Identifier: LGPL-2.1-or-later
"""
A connector of vLLM (KVConnectorBase_V1) that keeps the keys and values of whole blocks in pinned memory of the host, and
has them back layer by layer for a request that begins with the same tokens:

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "GlakeConnector", "kv_role": "kv_both",
        "kv_connector_module_path": "glake.vllm_connector", "kv_connector_extra_config": {"host_bytes": 68719476736}}'

The scheduler's half knows which block lies in which row of the host, by vLLM's own hashes of blocks, and forgets what was
wanted longest ago. The worker's half has a stream of its own: a layer is saved on it behind the kernels that wrote it, and
those of a request that comes are loaded on it in the order in which they are computed; the model's stream waits for one
layer at a time. Copies are glake's (glake_copy_list), and go over the links of other GPUs that lend them.

One group of layers, as dense models have, in vLLM 0.33. It was never run on a GPU.
"""

import collections
import ctypes
import itertools

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole

from . import host, library, pytorch
from .library import GlakeError
from .view import stream_of

HOST_BYTES = 8 << 30
_RANGES = 65536  # of a list, at most


class _Range(ctypes.Structure):
    _fields_ = [("dst", ctypes.c_void_p), ("src", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class Plan(KVConnectorMetadata):
    """What a step copies: pairs of a row of the host and a block of the GPU."""

    def __init__(self, loads, saves):
        self.loads, self.saves = loads, saves


class Rows:
    """Which block lies in which row; the one that was wanted longest ago goes first."""

    def __init__(self, count):
        self.count, self.of, self.free = count, collections.OrderedDict(), list(range(count))[::-1]

    def find(self, key):
        if key in self.of:
            self.of.move_to_end(key)
        return self.of.get(key)

    def put(self, key):
        row = self.free.pop() if self.free else self.of.popitem(last=False)[1]
        self.of[key] = row
        return row


class Layer:
    """Where the blocks of a layer lie, and their rows."""

    def __init__(self, tensor, blocks, rows, device):
        sizes, item = list(tensor.shape), tensor.element_size()
        if blocks not in sizes[:2]:
            raise GlakeError(f"a layer of {blocks} blocks whose tensor has the shape {tuple(sizes)}")
        axis = sizes.index(blocks)
        self.base, self.step = tensor.data_ptr(), tensor.stride(axis) * item
        # bytes that lie together, and where such runs begin in a block
        run, outer = item, []
        for step, size in sorted((step * item, size) for i, (step, size) in enumerate(zip(tensor.stride(), sizes)) if i != axis):
            if size == 1:
                continue
            if step == run and not outer:
                run *= size
            else:
                outer.append([step * i for i in range(size)])
        self.run, self.offsets = run, [sum(steps) for steps in itertools.product(*outer[::-1])]
        self.bytes = run * len(self.offsets)
        self.memory = host.pinned_empty(rows * self.bytes, dtype=pytorch.module().uint8, device=device)
        self.rows = self.memory.data_ptr()

    def ranges(self, pairs, out):
        """Runs of these blocks; those that follow each other on both sides are one."""
        found = []
        for row, block in sorted(pairs, key=lambda pair: pair[1]):
            for i, offset in enumerate(self.offsets):
                there, here = self.rows + row * self.bytes + i * self.run, self.base + block * self.step + offset
                last = found and found[-1]
                if last and last[0] + last[2] == there and last[1] + last[2] == here:
                    last[2] += self.run
                else:
                    found.append([there, here, self.run])
        return [(there, here, bytes) if out else (here, there, bytes) for there, here, bytes in found]


class GlakeConnector(KVConnectorBase_V1):
    def __init__(self, vllm_config, role, kv_cache_config=None):
        super().__init__(vllm_config, role, kv_cache_config)
        groups = kv_cache_config.kv_cache_groups if kv_cache_config else ()
        if len(groups) != 1:
            raise GlakeError(f"GlakeConnector is for models whose layers are one group; here are {len(groups)}")
        spec, extra = groups[0].kv_cache_spec, vllm_config.kv_transfer_config.kv_connector_extra_config or {}
        self.tokens, self.blocks = spec.block_size, kv_cache_config.num_blocks
        hashed = getattr(kv_cache_config, "hash_block_size", None) or self.tokens
        if hashed != self.tokens:
            raise GlakeError(f"blocks of {self.tokens} tokens, whose hashes are of {hashed}")
        count = int(extra.get("host_bytes", HOST_BYTES)) // (len(groups[0].layer_names) * spec.page_size_bytes)
        if count < 1:
            raise GlakeError("host_bytes has no room for a block")
        if role == KVConnectorRole.SCHEDULER:
            self.rows, self.known, self.matched, self.loads = Rows(count), {}, {}, []
        else:
            self.count, self.layers, self.stream, self.loaded, self.failed = count, {}, None, {}, set()

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config):
        """The hooks of layers are no part of a graph."""
        return True

    # the scheduler's half

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        first = num_computed_tokens // self.tokens
        # a token is computed in any case: its logits are wanted
        most = min(len(request.block_hashes), (request.num_tokens - 1) // self.tokens)
        count = 0
        while first + count < most and self.rows.find(request.block_hashes[first + count]) is not None:
            count += 1
        self.matched[request.request_id] = first
        return count * self.tokens, False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        here, first = list(blocks.get_block_ids()[0]), self.matched.pop(request.request_id, 0)
        for i in range(first, first + num_external_tokens // self.tokens):
            self.loads.append((self.rows.find(request.block_hashes[i]), here[i]))
        self.known[request.request_id] = [request, here, 0]

    def build_connector_meta(self, scheduler_output):
        """After this step a request has so many tokens; blocks that they fill, and that no row has, are saved."""
        saves, cached = [], scheduler_output.scheduled_cached_reqs
        ready = [(new.req_id, new.num_computed_tokens, new.block_ids, True) for new in scheduler_output.scheduled_new_reqs]
        ready += [(id, cached.num_computed_tokens[i], cached.new_block_ids[i], id in cached.resumed_req_ids)
                  for i, id in enumerate(cached.req_ids)]
        for id, computed, blocks, anew in ready:
            if id not in self.known:
                continue
            request, here, saved = self.known[id]
            here = list(blocks[0]) if anew and blocks else here + list(blocks[0] if blocks else ())
            computed += scheduler_output.num_scheduled_tokens.get(id, 0)
            full = min(computed // self.tokens, len(request.block_hashes), len(here))
            for i in range(saved, full):
                if self.rows.find(request.block_hashes[i]) is None:
                    saves.append((self.rows.put(request.block_hashes[i]), here[i]))
            self.known[id] = [request, here, full]
        loads, self.loads = self.loads, []
        # a row that serves another block before the step has ended is that one's
        last = {row: (row, block) for row, block in saves}
        return Plan(loads, list(last.values()))

    def request_finished(self, request, block_ids):
        self.known.pop(request.request_id, None)
        self.matched.pop(request.request_id, None)
        return False, None

    def reset_cache(self):
        self.rows = Rows(self.rows.count)
        return True

    # the worker's half

    def register_kv_caches(self, kv_caches):
        torch = pytorch.module()
        tensor = next(iter(kv_caches.values()))
        self.device = library.index(tensor.device) if tensor.is_cuda else 0
        if tensor.is_cuda:
            self.stream = torch.cuda.Stream(tensor.device)
        self.layers = {name: Layer(tensor, self.blocks, self.count, self.device) for name, tensor in kv_caches.items()}

    def unregister_kv_caches(self):
        self.layers = {}

    def _behind(self):
        """The stream of copies goes behind the model's."""
        if self.stream:
            self.stream.wait_stream(pytorch.module().cuda.current_stream(self.stream.device))

    def _copy(self, name, pairs, out):
        ranges, job = self.layers[name].ranges(pairs, out), ctypes.c_void_p()
        for at in range(0, len(ranges), _RANGES):
            part = ranges[at:at + _RANGES]
            library.call("glake_copy_list", (_Range * len(part))(*part), ctypes.c_size_t(len(part)),
                         stream_of(self.stream, self.device), ctypes.c_uint32(0), None if self.stream else ctypes.byref(job))
            if job:  # on a CPU there is nobody who would wait
                lib = library.load()
                library.check("glake_copy_wait", lib.glake_copy_wait(job, ctypes.c_int64(-1)))
                lib.glake_copy_close(job)

    def start_load_kv(self, forward_context, **kwargs):
        loads = self._get_connector_metadata().loads
        if not loads:
            return
        self._behind()
        for name in self.layers:
            try:
                self._copy(name, loads, False)
            except GlakeError:
                self.failed |= {block for _, block in loads}
            if self.stream:
                self.loaded[name] = self.stream.record_event()

    def wait_for_layer_load(self, layer_name):
        event = self.loaded.pop(layer_name, None)
        if event:
            event.wait(pytorch.module().cuda.current_stream(self.stream.device))

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        saves = self._get_connector_metadata().saves
        if saves:
            self._behind()
            self._copy(layer_name, saves, True)

    def wait_for_save(self):
        """In stream order: the next step writes its blocks behind the copies."""
        if self.stream:
            pytorch.module().cuda.current_stream(self.stream.device).wait_stream(self.stream)

    def get_block_ids_with_load_errors(self):
        failed, self.failed = self.failed, set()
        return failed

    def shutdown(self):
        if getattr(self, "layers", None):
            if self.stream:
                self.stream.synchronize()
            self.layers = {}
