# SPDX-License-Identifier: LGPL-2.1-or-later
"""
vLLM's sleep mode on glake. The package has this name as its own and loads this file with it:

    glake.use_vllm()               before the engine is made, in each process that uses a GPU

vLLM then gets its weights and its cache from here when sleep mode is on: what it asks for under a tag is
of that tag, sleep() sends the tags that it wants to keep to the host and drops the others, and wake_up()
has them back at their addresses, so that captured graphs and pointers stay valid.

    allocator = glake.VllmAllocator()      the same for other programs
"""

import contextlib
import gc
import sys

from . import library, pytorch, tier
from .library import GlakeError


class VllmAllocator:
    """What vllm.device_allocator.cumem.CuMemAllocator is to vLLM, on tags of glake."""

    default_tag, instance = "default", None

    @classmethod
    def get_instance(cls):
        if VllmAllocator.instance is None:
            VllmAllocator.instance = cls()
        return VllmAllocator.instance

    def __init__(self):
        self.current_tag, self.pools, self.asleep = self.default_tag, {}, set()

    @staticmethod
    def _name(tag):
        return "vllm." + tag

    @contextlib.contextmanager
    def use_memory_pool(self, tag=None):
        """What is made inside is of the tag. Its pool stays, also when the context is entered again."""
        torch, tag = pytorch.module(), self.default_tag if tag is None else tag
        key = (tag, torch.cuda.current_device())
        if key not in self.pools:
            self.pools[key] = pytorch.pool()
        was, self.current_tag = self.current_tag, tag
        try:
            with tier.tag(self._name(tag)), torch.cuda.use_mem_pool(self.pools[key]):
                yield
        finally:
            self.current_tag = was

    def _tags(self):
        return list(dict.fromkeys(tag for tag, _ in self.pools))

    def _turn(self, function, tag, **options):
        """On the GPUs where there is a pool of it."""
        return [function(device, tag=self._name(tag), **options)
                for name, device in self.pools if name == tag]

    def _send(self, tags, keep):
        for tag in tags:
            if tag not in self.asleep:
                self.asleep.add(tag)  # also where it fails half way: waking up goes on from there
                self._turn(tier.suspend, tag, keep=keep)

    def sleep(self, offload_tags=None):
        """Sends those tags to the host, the default one if none is named, and drops the others."""
        if offload_tags is None:
            offload_tags = (self.default_tag,)
        kept = (offload_tags,) if isinstance(offload_tags, str) else tuple(offload_tags)
        gc.collect()
        self._send([tag for tag in self._tags() if tag in kept], True)
        self._send([tag for tag in self._tags() if tag not in kept], False)
        pytorch.module().cuda.empty_cache()

    def discard(self, tags=None):
        """Drops what tags hold, or all."""
        self._send([tag for tag in self._tags() if tags is None or tag in tags], False)

    def wake_up(self, tags=None):
        """Has tags back, or all that sleep. One that fails sleeps still, and may be woken up again."""
        for tag in self._tags():
            if tag in self.asleep and (tags is None or tag in tags):
                for name, device in self.pools:
                    if name == tag and tier.tags()[self._name(tag)][device]["suspended"]:
                        tier.resume(device, tag=self._name(tag))
                self.asleep.discard(tag)

    def get_current_usage(self):
        """Bytes of all pools, awake or not."""
        told = tier.tags()
        return sum(told[self._name(tag)][device]["live"] for tag, device in self.pools
                   if self._name(tag) in told)


def use_vllm():
    """Has vLLM's sleep mode take its memory from glake."""
    if library.plugged:
        raise GlakeError("glake.use() has made glake the allocator of all tensors; vLLM's sleep mode "
                         "wants PyTorch's, with pools of glake in it")
    try:
        import vllm.device_allocator as package
        from vllm.device_allocator import cumem
    except ImportError as error:
        raise GlakeError(f"vLLM is not installed or does not load: {error}") from None
    library.context()
    cumem.cumem_available = True
    cumem.CuMemAllocator = VllmAllocator
    # newer versions ask by a function, which others may have under their own name
    if hasattr(package, "get_mem_allocator_instance"):
        theirs = package.get_mem_allocator_instance
        for module in list(sys.modules.values()):
            if getattr(module, "get_mem_allocator_instance", None) is theirs:
                module.get_mem_allocator_instance = VllmAllocator.get_instance
    return VllmAllocator.get_instance()
