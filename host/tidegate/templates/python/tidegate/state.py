"""State of the host: it outlives instances and reloads, and is shared by all flows that use the policy.

Names and keys are the policy's own.
"""

from wit_world.imports import state as host

from .policy import millis


def take(bucket: str, key: str, tokens: float, *, rate_per_second: float, burst: float) -> int:
    """Takes `tokens` from the bucket of `key`.

    Answers 0 when they were taken, else the milliseconds until they could be, with nothing taken.
    """
    return host.take(bucket, key, tokens, host.Limit(rate_per_second, burst))


def add(counter: str, key: str, delta: int, ttl: float) -> int:
    """Adds to a counter and answers its new value. It forgets itself after `ttl` milliseconds without a change."""
    return host.add(counter, key, delta, millis(ttl))


def get(counter: str, key: str) -> int:
    """The value of a counter, 0 when it was never changed or has forgotten itself."""
    return host.get(counter, key)
