"""Policies that decide about each message before the sink sees it: now, later or never."""

from typing import Any

from wit_world.exports import throttle as contract
from wit_world.exports.throttle import Verdict
from wit_world.imports.delivery import Message, Standing

from . import state
from .observer import observer
from .policy import *
from .policy import lifecycle_of, millis, told

_DELIVER = contract.Verdict_Deliver()


def deliver() -> Verdict:
    """Hand it to the sink."""
    return _DELIVER


def defer(delay: float, reason: str) -> Verdict:
    """Give it back to the broker for `delay` milliseconds."""
    return contract.Verdict_Defer(contract.Deferral(millis(delay), reason))


def reject(reason: str) -> Verdict:
    """It can never be handled: dead-letter it."""
    return contract.Verdict_Reject(reason)


def discard(reason: str) -> Verdict:
    """Nobody wants it: settle it as done without handing it to the sink."""
    return contract.Verdict_Discard(reason)


def throttle_policy(policy: Any) -> tuple[type, type]:
    """`Lifecycle` and `Throttle` of a policy with `describe()`, `configure(rules)` and `decide(message)`.

    The module of the policy must have both, by these names.
    """

    class Throttle:
        @told
        def decide(self, message: Message) -> Verdict:
            verdict = policy.decide(message)
            if not isinstance(verdict, Verdict):
                raise TypeError(f"it answered {verdict!r} and not deliver(), defer(…), reject(…) or discard(…)")
            return verdict

    return lifecycle_of(policy), Throttle
