# SPDX-License-Identifier: LGPL-2.1-or-later
"""
The structures of the public headers that the package reads and hands over. Each begins with its size, so
that a newer library fills no more of it than there is.
"""

import ctypes

CALLS = ("reserve unreserve create map set_access unmap release export import event_create "
         "event_record event_query stream_wait sync copy other managed_alloc managed_free "
         "managed_advise managed_prefetch").split()
RUNGS = "limbo recut cross_stream spill_peer spill_host".split()


class Sized(ctypes.Structure):
    def __init__(self):
        super().__init__(sz=ctypes.sizeof(self))


def many(kind, names):
    return [(name, kind) for name in names.split()]


class Stats(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(ctypes.c_uint64, (
        "live given reserved free_pages mapped address_space metadata budget peak_live "
        "peak_reserved allocs frees hits misses stitches oom live_blocks free_extents "
        "largest_hole lost")), ("rungs", ctypes.c_uint64 * len(RUNGS)), *many(ctypes.c_uint64, (
            "called quick flushes streams events unmapped released held_back graces pools "
            "pool_held")), ("hold_max", ctypes.c_int64), *many(
                ctypes.c_uint64, "away away_blocks spills fetches host_held placed placed_blocks "
                "peak_host_held returned returned_blocks victims victim_bytes idle stranded "
                "in_flight spilled fetched store store_used managed managed_blocks "
                "managed_held managed_chunks host_pool_live host_pool_given host_pool_held "
                "host_pool_waiting host_pool_blocks host_pool_pieces host_pool_allocs "
                "host_pool_grows host_pool_refused peak_host_pool_live peak_host_pool_held "
                "tags tags_suspended tagged tagged_blocks tagged_held "
                "discards discarded prefetches prefetch_early prefetch_late prefetch_useless "
                "prefetch_queued spill_waits placed_peer borrowed lent managed_advised "
                "packed packed_held store_peer store_peer_used total_given elastic elastic_blocks elastic_shared")]


class DriverStats(Sized):
    _fields_ = [("sz", ctypes.c_size_t), ("now_ns", ctypes.c_int64),
                ("calls", ctypes.c_uint64 * len(CALLS)), ("ns", ctypes.c_int64 * len(CALLS))]


class Block(Sized):
    _fields_ = [("sz", ctypes.c_size_t), ("base", ctypes.c_void_p),
                *many(ctypes.c_size_t, "size given"), ("device", ctypes.c_int),
                ("flags", ctypes.c_uint32), *many(ctypes.c_size_t, "page_size pages"),
                ("stream", ctypes.c_void_p), *many(ctypes.c_uint64, "pool_high pool_low"),
                *many(ctypes.c_uint32, "can exports"), ("peers", ctypes.c_uint64),
                *many(ctypes.c_size_t, "away placed"), ("advice", ctypes.c_uint64),
                ("managed", ctypes.c_size_t), *many(ctypes.c_uint32, "tag pins"),
                *many(ctypes.c_size_t, "dropped away_peer committed")]


class Device(Sized):
    _fields_ = [("sz", ctypes.c_size_t), ("name", ctypes.c_char * 96),
                ("uuid", ctypes.c_char * 48), ("pci", ctypes.c_char * 16),
                *many(ctypes.c_uint64, "memory free"),
                *many(ctypes.c_int, "free_valid numa_node"), ("caps", ctypes.c_uint32),
                *many(ctypes.c_int, "major minor"),
                *many(ctypes.c_uint64, "granularity granularity_recommended")]


class Error(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(ctypes.c_int, "err error_class native"),
                ("call", ctypes.c_char * 32), ("text", ctypes.c_char * 256)]


class Record(ctypes.Structure):
    _fields_ = [*many(ctypes.c_uint64, "address size stream"), ("time_us", ctypes.c_int64),
                *many(ctypes.c_int32, "device action"), ("stack", ctypes.c_uint64)]


class Stacks(ctypes.Structure):
    _fields_ = many(ctypes.c_uint64, "taken without dropped places nodes text_bytes")
