# SPDX-License-Identifier: LGPL-2.1-or-later
"""
States of an optimizer, on the host between one step and the next. The package has this as its own:

    spilled = glake.spilled_optimizer(optimizer)
"""

import collections
import sys
import threading
import types
import weakref

from . import spilled
from .library import GlakeError
from .spilled import Holders, local, unasked


def _references(container, key):
    """How many hold what is in a container, with this function."""
    value = container[key]
    return sys.getrefcount(value)


_ALONE = _references({0: object()}, 0)
# Of torch.optim, those whose step does for each parameter what it would do for it alone.
_EACH = "Adam AdamW NAdam RAdam Adamax Adagrad Adadelta RMSprop Rprop SGD ASGD".split()


class spilled_optimizer:
    """
    Sends the states of an optimizer to the host behind each step and fetches them before the next, and
    before state_dict(). What somebody else holds, as by state_dict(), stays here for a step.

    early    begins to fetch the states of a parameter when its gradient is there, beside the rest of
             the backward pass; without accumulation of gradients over several of them
    minimum  bytes of a state that is worth to be moved
    chunk    bytes of states that a step takes at a time, while the next ones come and the last ones
             go, so that two such parts are here at once; for most optimizers of torch.optim

    Without chunk all states are here during a step. As a context, or until close(), which fetches
    them; fetch() does for who wants to read or copy them by hand.
    """

    def __init__(self, optimizer, early=False, minimum=1 << 20, chunk=None):
        self._mover, self._lock = spilled.Mover(), threading.RLock()
        import torch  # it is there
        for name in ("register_step_pre_hook", "register_state_dict_pre_hook"):
            if not hasattr(optimizer, name):
                raise GlakeError(f"{type(optimizer).__name__} has no {name}")
        self._tensor, self._strided, self._holders = torch.Tensor, torch.strided, Holders(torch)
        self._unasked = unasked(torch)
        self._optimizer, self._minimum = weakref.ref(optimizer), max(minimum, spilled.SMALL + 1)
        self._away = {}  # by parameter: [(weak reference to a state, bytes)]
        self._come = {}  # by parameter: [(weak reference to a state, bytes, number, what to wait for)]
        self._number = 0
        self._told = {}  # by parameter that tells when its gradient is there: a weak reference
        self._light = {}  # by parameter, of those whose states are all small: a weak reference
        self._early, self._stays = early, False
        self._figures = dict.fromkeys("spilled spilled_bytes fetched fetched_bytes "
                                      "fetched_ahead_bytes peak_away".split(), 0)
        self._skipped = collections.Counter()
        self._hooks = [
            optimizer.register_step_pre_hook(lambda *_: None if chunk else self.fetch()),
            optimizer.register_step_post_hook(lambda *_: None if self._parted else self.spill()),
            optimizer.register_state_dict_pre_hook(lambda *_: self.fetch())]
        self._step = self._before = None
        self._parted = False  # the last step sent each part behind it
        if chunk:
            self._step_in_parts(torch, optimizer, chunk)

    @property
    def figures(self):
        """States and bytes that went and came; those that stayed, by reason."""
        with self._lock:
            return dict(self._figures, away_bytes=sum(
                size for rows in self._away.values() for who, size in rows if who() is not None),
                skipped=dict(self._skipped))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends that, with all states here."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        optimizer = self._optimizer()
        if self._step and optimizer and vars(optimizer).get("step") is self._step:
            del optimizer.step
            if self._before:
                optimizer.step = self._before
        self.fetch()

    def _step_in_parts(self, torch, optimizer, chunk):
        """Has optimizer.step() do one part of the parameters after the other, with hooks run once."""
        kind = type(optimizer)
        if kind not in [getattr(torch.optim, name, None) for name in _EACH]:
            raise GlakeError(f"chunk: a step of {kind.__name__} is not known to be one of each "
                             "parameter alone")
        inner = kind.step.__wrapped__ if getattr(kind.step, "hooked", False) else kind.step

        def step(optimizer, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            optimizer._opt_called = True  # as schedulers want to know
            self._parted = bool(self._hooks) and not self._stays and not self._mover.capturing()
            if self._parted:
                self._take_parts(optimizer, inner, chunk)
            else:
                self.fetch()
                inner(optimizer)
            return loss
        self._before = vars(optimizer).get("step")
        self._step = optimizer.step = types.MethodType(
            torch.optim.Optimizer.profile_hook_step(step), optimizer)

    def _take_parts(self, optimizer, inner, chunk):
        groups = optimizer.param_groups
        whole = [group["params"] for group in groups]
        parts = [(group, part) for group, weights in zip(groups, whole)
                 for part in self._cut(weights, chunk)]
        parts.reverse()  # gradients came from the last weights on, and states with them
        own = self._own(optimizer)
        try:
            for group in groups:
                group["params"] = []
            for number, (group, part) in enumerate(parts):
                for weight in part:
                    self._begin(id(weight), early=False)
                for weight in parts[number + 1][1] if number + 1 < len(parts) else ():
                    self._begin(id(weight))
                self._arrive([id(weight) for weight in part])
                group["params"] = part
                inner(optimizer)
                group["params"] = []
                with self._unasked():
                    for weight in part:
                        self._send(optimizer, weight, own)
        finally:
            for group, weights in zip(groups, whole):
                group["params"] = weights
        self._note_peak()

    def _cut(self, weights, chunk):
        """Parts whose states, those that are away or come, have so many bytes, or of one parameter."""
        part, size = [], 0
        for weight in weights:
            more = self._bytes(id(weight))
            if part and size + more > chunk:
                yield part
                part, size = [], 0
            part.append(weight)
            size += more
        if part:
            yield part

    @staticmethod
    def _own(optimizer):
        return {local(weight).untyped_storage()._cdata
                for group in optimizer.param_groups for weight in group["params"]}

    def _listen(self, parameter):
        """Has a parameter's states fetched when its gradient is there."""
        known = self._told.get(id(parameter))
        if not self._early or known and known() is parameter or not parameter.requires_grad:
            return
        self._told[id(parameter)] = weakref.ref(parameter)
        me = weakref.ref(self)

        def there(of):
            spilled = me()
            if spilled is not None:
                spilled._begin(id(of))
        self._hooks.append(parameter.register_post_accumulate_grad_hook(there))

    def _bytes(self, of):
        """Of the states of a parameter that are away or come."""
        return sum(row[1] for rows in (self._away, self._come) for row in rows.get(of, ()))

    def spill(self):
        """Sends the states away; the end of each step does."""
        optimizer = self._optimizer()
        with self._lock:
            if optimizer is None or self._stays:
                return
            if self._mover.capturing():
                self._stays = True  # the graph will use them where they are, unannounced
                self._skipped["captured"] += 1
                return
            with self._unasked():
                own = self._own(optimizer)
                for parameter in list(optimizer.state):
                    self._send(optimizer, parameter, own)
            self._note_peak()

    def _note_peak(self):
        self._figures["peak_away"] = max(self._figures["peak_away"], self.figures["away_bytes"])

    def _send(self, optimizer, parameter, own):
        """Those of one parameter."""
        light = self._light.get(id(parameter))
        if light and light() is parameter or not isinstance(optimizer.state.get(parameter), dict):
            return
        held = _references(optimizer.state, parameter) > _ALONE
        states, rows = optimizer.state[parameter], self._away.setdefault(id(parameter), [])
        gone = [who() for who, _ in rows]
        heavy = bool(rows)
        for name in states:
            if not isinstance(states[name], self._tensor) or any(
                    state is states[name] for state in gone):
                continue
            shared = held or _references(states, name) > _ALONE
            state = local(states[name])
            why = self._why_not(state, shared, own)
            heavy = heavy or why != "small"
            if why:
                self._skipped[why] += 1
                continue
            size = state.untyped_storage().nbytes()
            rows.append((weakref.ref(states[name]), size))
            self._figures["spilled"] += 1
            self._figures["spilled_bytes"] += size
        if rows and isinstance(parameter, self._tensor):
            self._listen(parameter)
        elif not heavy and states and isinstance(parameter, self._tensor):
            self._light[id(parameter)] = weakref.ref(parameter)

    def _why_not(self, state, shared, own):
        """Sends one away; why not, or None."""
        if state.layout != self._strided:
            return "of another kind"
        storage = state.untyped_storage()
        if storage.nbytes() < self._minimum:
            return "small"
        if storage._cdata in own:
            return "parameter"
        if shared or self._holders.count(storage._cdata) > 2:
            return "held"
        return self._mover.why_not(state, storage) or self._mover.spill(state, storage, ())

    def _begin(self, of, early=True):
        """Begins to fetch the states of one parameter."""
        with self._lock, self._unasked():
            rows = self._away.get(of, [])
            while rows:
                who, size = rows[-1]
                state = who()
                if state is not None:
                    arrival = self._mover.fetch(local(state), local(state).untyped_storage())
                    if arrival is None and early:
                        return
                    if arrival is None:
                        raise self._mover.no_memory(size)
                    self._number += 1
                    self._come.setdefault(of, []).append((who, size, self._number, arrival))
                    self._figures["fetched"] += 1
                    self._figures["fetched_bytes"] += size
                    self._figures["fetched_ahead_bytes"] += size if early else 0
                rows.pop()

    def fetch(self):
        """Has all states here, for work on the current stream; before a step that is done."""
        with self._lock:
            for of in list(self._away):
                self._begin(of, early=False)
            self._away.clear()
            self._arrive(list(self._come))

    def _arrive(self, parameters):
        """Has the states of parameters, which come, for the current stream. They come one after the other, so
        that of each GPU the last one is waited for."""
        last = {}
        with self._lock, self._unasked():
            for of in parameters:
                for who, _, number, arrival in self._come.get(of, ()):
                    state = who()
                    if state is not None:
                        state = local(state)
                        last[state.device] = max(
                            last.get(state.device, (0,)), (number, state, arrival),
                            key=lambda row: row[0])
            for _, state, arrival in last.values():
                self._mover.arrive(state, arrival)
            for of in parameters:
                self._come.pop(of, None)
