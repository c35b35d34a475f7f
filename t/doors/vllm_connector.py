# SPDX-License-Identifier: LGPL-2.1-or-later
"""
glake.vllm_connector on the software device, between a scheduler and a worker that are made up here, as vLLM calls them:
what comes back from the host is what was saved, in each layout of the blocks, while rows are few, requests come in parts,
are preempted and begin alike. Its base class is vLLM's own where that is installed (pip install --no-deps vllm), with what
it imports beside stood in for; else a recorded one with the same methods.

    vllm_connector.py SOURCE PLUGIN [ENVIRONMENT]
"""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../flow"))
import tap  # noqa: E402

SOURCE, PLUGIN = map(os.path.abspath, sys.argv[1:3])
PACKAGES = os.path.join(sys.argv[3], "bin/python3") if sys.argv[3:] else sys.executable
PACKAGES = PACKAGES if os.path.exists(PACKAGES) else sys.executable
ENV = {**os.environ, "GLAKE_DRIVER_BACKEND": "soft", "GLAKE_LIBRARY_PATH": os.path.dirname(PLUGIN),
       "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1"}

PROGRAM = '''
import abc, enum, importlib.util, os, random, sys, types
from unittest import mock

BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"
found = importlib.util.find_spec("vllm")
real = found and os.path.join(os.path.dirname(found.origin), "distributed/kv_transfer/kv_connector/v1/base.py")


class StoodIn(mock.MagicMock):
    __path__, __spec__ = [], None


if real and os.path.exists(real):
    for name in ("vllm.logger", "vllm.v1.attention.backend", "vllm.v1.core.sched.output", "vllm.v1.metrics.cache_hit_source",
                 "vllm.v1.outputs"):
        parts = name.split(".")
        for i in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:i]), StoodIn())
    spec = importlib.util.spec_from_file_location(BASE, real)
    base = importlib.util.module_from_spec(spec)
else:
    base, spec = types.ModuleType(BASE), None

    class KVConnectorRole(enum.Enum):
        SCHEDULER, WORKER = 0, 1

    class KVConnectorBase_V1(abc.ABC):
        def __init__(self, vllm_config, role, kv_cache_config):
            self._connector_metadata, self._role = None, role

        def bind_connector_metadata(self, connector_metadata):
            self._connector_metadata = connector_metadata

        def clear_connector_metadata(self):
            self._connector_metadata = None

        def _get_connector_metadata(self):
            assert self._connector_metadata is not None
            return self._connector_metadata

        for method in ("start_load_kv wait_for_layer_load save_kv_layer wait_for_save get_num_new_matched_tokens "
                       "update_state_after_alloc build_connector_meta").split():
            locals()[method] = abc.abstractmethod(lambda self: None)

    base.KVConnectorRole, base.KVConnectorBase_V1 = KVConnectorRole, KVConnectorBase_V1
    base.KVConnectorMetadata = type("KVConnectorMetadata", (abc.ABC,), {})
parts = BASE.split(".")
for i in range(1, len(parts)):
    sys.modules.setdefault(".".join(parts[:i]), StoodIn())
sys.modules[BASE] = base
if spec:
    spec.loader.exec_module(base)
print("base", "vllm" if spec else "recorded")

import torch
import glake
from glake import library, vllm_connector

Space = types.SimpleNamespace
BLOCKS, LAYERS, TOKENS, HEADS, SIZE = 40, 3, 4, 2, 8
PAGE = 2 * TOKENS * HEADS * SIZE * 4


def config(rows, groups=1):
    group = Space(layer_names=[f"layer{i}" for i in range(LAYERS)], kv_cache_spec=Space(block_size=TOKENS, page_size_bytes=PAGE))
    return (Space(kv_transfer_config=Space(kv_connector_extra_config={"host_bytes": rows * LAYERS * PAGE})),
            Space(num_blocks=BLOCKS, kv_cache_groups=[group] * groups, hash_block_size=TOKENS))


def made(layout):
    """A layer's tensor, and the view of it that is [blocks, 2, tokens, heads, size]."""
    for i in range(LAYERS):
        if layout == "block":
            tensor = torch.zeros(BLOCKS, 2, TOKENS, HEADS, SIZE)
            yield tensor, tensor
        elif layout == "keys":
            tensor = torch.zeros(2, BLOCKS, TOKENS, HEADS, SIZE)
            yield tensor, tensor.transpose(0, 1)
        elif layout == "heads":
            tensor = torch.zeros(BLOCKS, 2, HEADS, TOKENS, SIZE).transpose(2, 3)
            yield tensor, tensor
        else:
            if not i:
                whole = torch.zeros(BLOCKS, LAYERS, 2, TOKENS, HEADS, SIZE)
            yield whole[:, i], whole[:, i]


def value(words, layer):
    """What a layer keeps of the last of these words."""
    return float(hash((tuple(words), layer)) % 100003)


class Engine:
    def __init__(self, layout, rows):
        self.scheduler = vllm_connector.GlakeConnector(config(rows)[0], base.KVConnectorRole.SCHEDULER, config(rows)[1])
        self.worker = vllm_connector.GlakeConnector(config(rows)[0], base.KVConnectorRole.WORKER, config(rows)[1])
        pairs = list(made(layout))
        self.layers = {f"layer{i}": tensor for i, (tensor, _) in enumerate(pairs)}
        self.views = [view for _, view in pairs]
        self.worker.register_kv_caches(self.layers)
        self.free, self.matched, self.wrong, self.loaded = list(range(BLOCKS)), 0, 0, 0

    def step(self, starts, goes_on):
        """Requests that begin, each with how many tokens of it at most; and others."""
        new, tokens, cached = [], {}, []
        for r, most in starts:
            count, later = self.scheduler.get_num_new_matched_tokens(r, 0)
            assert not later and (count, later) == self.scheduler.get_num_new_matched_tokens(r, 0)
            r.blocks = [self.free.pop() for _ in range(-(-r.num_tokens // TOKENS))]
            self.scheduler.update_state_after_alloc(r, Space(get_block_ids=lambda r=r: (r.blocks,)), count)
            r.computed, self.matched = count, self.matched + count
            tokens[r.request_id] = min(most, r.num_tokens - count)
            new.append(Space(req_id=r.request_id, num_computed_tokens=count, block_ids=(r.blocks,)))
        for r, most in goes_on:
            tokens[r.request_id] = min(most, r.num_tokens - r.computed)
            cached.append(r)
        out = Space(scheduled_new_reqs=new, num_scheduled_tokens=tokens, scheduled_cached_reqs=Space(
            req_ids=[r.request_id for r in cached], num_computed_tokens=[r.computed for r in cached],
            new_block_ids=[None] * len(cached), resumed_req_ids=set()))
        meta = self.scheduler.build_connector_meta(out)
        self.loaded += len(meta.loads)
        self.worker.bind_connector_metadata(meta)
        self.worker.start_load_kv(None)
        for number, (name, tensor) in enumerate(self.layers.items()):
            self.worker.wait_for_layer_load(name)
            for r, _ in starts + goes_on:
                for t in range(r.computed):
                    here = self.views[number][r.blocks[t // TOKENS], :, t % TOKENS]
                    self.wrong += not bool((here == value(r.words[:t + 1], number)).all())
                for t in range(r.computed, r.computed + tokens[r.request_id]):
                    self.views[number][r.blocks[t // TOKENS], :, t % TOKENS] = value(r.words[:t + 1], number)
            self.worker.save_kv_layer(name, tensor, None)
        self.worker.wait_for_save()
        self.worker.clear_connector_metadata()
        for r, _ in starts + goes_on:
            r.computed += tokens[r.request_id]

    def end(self, r):
        assert self.scheduler.request_finished(r, r.blocks) == (False, None)
        for view in self.views:
            view[r.blocks] = -1
        self.free += r.blocks


def request(number, words):
    hashes = [hash(tuple(words[:n])) for n in range(TOKENS, len(words) + 1, TOKENS)]
    return Space(request_id=f"r{number}", words=words, num_tokens=len(words), block_hashes=hashes, computed=0)


for layout in ("block", "keys", "heads", "packed"):
    engine, draw, running = Engine(layout, 12), random.Random(1), []
    beginnings = [[draw.randrange(99) for _ in range(20)] for _ in range(3)]
    for number in range(60):
        words = draw.choice(beginnings)[:draw.randint(3, 20)] + [draw.randrange(99) for _ in range(draw.randint(1, 9))]
        begins = [(request(number, words), draw.choice((3, 7, 99)))] if len(running) < 4 else []
        engine.step(begins, [(r, draw.choice((1, 5, 99))) for r in running])
        running += [r for r, _ in begins]
        for r in [r for r in running if r.computed == r.num_tokens or draw.random() < 0.1]:
            running.remove(r)
            engine.end(r)
    print(layout, "matched", engine.matched > 100, "loaded", engine.loaded * TOKENS == engine.matched, "wrong", engine.wrong,
          "rows", len(engine.scheduler.rows.of))
    engine.scheduler.reset_cache()
    print("forgotten", engine.scheduler.get_num_new_matched_tokens(request(0, beginnings[0] * 2), 0))
    engine.worker.shutdown()

engine = Engine("block", 12)
one = request(1, list(range(13)))
engine.step([(one, 99)], [])
engine.end(one)
with mock.patch.object(library, "call", side_effect=glake.GlakeError("no copy")):
    engine.worker.bind_connector_metadata(vllm_connector.Plan([(0, 7), (1, 9)], []))
    engine.worker.start_load_kv(None)
print("failed", engine.worker.get_block_ids_with_load_errors(), engine.worker.get_block_ids_with_load_errors())
print("graphs", vllm_connector.GlakeConnector.requires_piecewise_for_cudagraph({}))
for wrong in ((0, 1), (4, 2)):
    try:
        vllm_connector.GlakeConnector(config(*wrong)[0], base.KVConnectorRole.WORKER, config(*wrong)[1])
    except glake.GlakeError as error:
        print("refused:", error)
'''

WANTED = "".join(f"{layout} matched True loaded True wrong 0 rows 12\nforgotten (0, False)\n"
                 for layout in ("block", "keys", "heads", "packed")) + '''failed {9, 7} set()
graphs True
refused: host_bytes has no room for a block
refused: GlakeConnector is for models whose layers are one group; here are 2
'''


def main():
    find = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('torch'))"
    if subprocess.run([PACKAGES, "-c", find], check=False, env=ENV).returncode:
        print("1..0 # SKIP no PyTorch here: see t/doors/meson.build")
        return
    tap.start()
    ran = subprocess.run([PACKAGES, "-c", PROGRAM], env={**ENV, "PYTHONHASHSEED": "1"}, capture_output=True, text=True,
                         check=False, timeout=tap.HUNG)
    first, _, rest = ran.stdout.partition("\n")
    tap.ok(first in ("base vllm", "base recorded"), f"the class below it: {first}", ran.stderr[-2000:])
    for line, want in zip(rest.splitlines() + [""] * 20, WANTED.splitlines()):
        tap.equal(line, want, want)
    tap.ok(not ran.returncode and "glake" not in ran.stderr, "it ends well, and the library warns of nothing", ran.stderr[-2000:])
    tap.done()


main()
