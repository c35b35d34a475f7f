# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Memory that kernels write where they should not. The package has these names as its own:

    glake.guard("canary")     guard.mode for what is asked for from here on: off, sample, canary, poison
    glake.check()             looks at all that is guarded; raises GuardError for what was found since the
                              last call that did, with the line of each tensor
    glake.findings()          all that was found on all GPUs, as dictionaries, the last 64 of each
    glake.whose(tensor)       what an address is: of a live block, of one that was freed, of none

Lines of Python are those of the request, and stand there with glake.use(events=100000, stacks=32).
"""

import ctypes

from . import events, library
from .library import GlakeError
from .records import Sized, many
from .tier import address_of


class _Finding(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(ctypes.c_int, "kind device"), ("base", ctypes.c_void_p),
                *many(ctypes.c_size_t, "size offset bytes"), ("stream", ctypes.c_void_p),
                *many(ctypes.c_uint32, "thread freed_by"), *many(ctypes.c_int64, "age_ns freed_ns"),
                ("next", ctypes.c_void_p), ("next_size", ctypes.c_size_t), *many(ctypes.c_uint32, "owners unused"),
                ("made_at", ctypes.c_uint64 * 12), ("freed_at", ctypes.c_uint64 * 12)]


class _Checked(Sized):
    _fields_ = [("sz", ctypes.c_size_t),
                *many(ctypes.c_uint64, "blocks broken freed kept unchecked unguarded findings again contents cleared uncleared")]


class _Described(Sized):
    _fields_ = [("sz", ctypes.c_size_t), *many(ctypes.c_int, "what device"), ("base", ctypes.c_void_p),
                *many(ctypes.c_size_t, "size given"), ("offset", ctypes.c_int64), ("stream", ctypes.c_void_p),
                *many(ctypes.c_uint32, "tag thread freed_by"), *many(ctypes.c_int64, "age_ns freed_ns"),
                *many(ctypes.c_void_p, "before behind"), *many(ctypes.c_size_t, "before_size behind_size")]


class GuardError(GlakeError):
    """What was found: `findings` is a list of dictionaries, as glake.findings() gives them."""

    def __init__(self, found):
        super().__init__("; ".join(map(_sentence, found)) + " (GUARD)")
        self.findings = found


GuardError.__module__ = "glake"
_told = {}  # of each GPU, how many findings were raised


def _name(function, number):
    name = getattr(library.load(), function)
    name.restype = ctypes.c_char_p
    return name(number).decode()


def _fields(record, *without):
    values = {name: getattr(record, name) or 0 for name, _ in record._fields_
              if name not in ("sz", "unused", *without)}
    return {name: [at for at in value if at] if isinstance(value, ctypes.Array) else value
            for name, value in values.items()}


def _frames(addresses):
    """The frames of the last request for each address, innermost first."""
    numbers = {}
    if events._state["events"]:
        for live in 0, 1:
            numbers |= {r.address: r.stack for r in events._records(live)
                        if (live or r.action == 0) and r.address in addresses}
    frames = events._Frames()
    return {address: frames[number] for address, number in numbers.items()}


def _sentence(found):
    what = {"overrun": f"{found['bytes']} bytes were written behind it, from offset {found['offset']} on",
            "underrun": f"{found['bytes']} bytes were written before it, from {found['offset']} before on",
            "after_free": f"{found['bytes']} bytes were written after its free, from offset {found['offset']} on",
            "double_free": "it was freed twice"}[found["kind"]]
    line = found["frames"][0] if found["frames"] else None
    made = f", made at {line['filename']}:{line['line']} in {line['name']}" if line else ""
    return f"GPU {found['device']}, the block of {found['size']} bytes at 0x{found['base']:x}{made}: {what}"


def _look():
    """Looks at all: the figures of that."""
    counted = _Checked()
    try:
        library.fetch("glake_check", counted)
    except GlakeError:
        if library.last_error()["class"] != "GUARD":
            raise
    return counted


def _all(counted):
    """What was found on each GPU, as far as it is kept, in the order in which it was found."""
    lib, context = library.context()
    found = []
    for device in range(library.call("glake_device_count")):
        rows, record = [], _Finding()
        for number in range(counted.findings - 1, -1, -1):
            if not lib.glake_finding_get(context, device, ctypes.c_uint64(number), ctypes.byref(record)):
                rows.append(dict(_fields(record), kind=_name("glake_finding_name", record.kind), number=number))
            elif rows:
                break
        found += rows[::-1]
    frames = _frames({row["base"] for row in found})
    return [dict(row, frames=frames.get(row["base"], [])) for row in found]


def guard(mode):
    """Sets guard.mode for what is asked for from here on."""
    library.call("glake_conf_set", b"guard.mode", str(mode).encode())


def check():
    """Looks at all that is guarded, behind the work of the GPUs: its figures, or GuardError for what was found since it
    was raised last."""
    counted = _look()
    if counted.findings < sum(_told.values()):  # another context
        _told.clear()
    if counted.findings > sum(_told.values()):
        found = [row for row in _all(counted) if row["number"] >= _told.get(row["device"], 0)]
        _told.update((row["device"], row["number"] + 1) for row in found)
        raise GuardError(found)
    return _fields(counted)


def findings():
    """All that was found and is kept, with the frames of who asked for each block."""
    return _all(_look())


def whose(address):
    """What the address of a tensor, or any other, is; with the frames of who asked for the block."""
    record = library.fetch("glake_describe", _Described(), ctypes.c_void_p(address_of(address)))
    what = _fields(record)
    what.update(what=_name("glake_what_name", record.what), frames=_frames({what["base"]}).get(what["base"], []))
    return what
