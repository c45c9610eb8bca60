"""Policies that decide whether the lease of a delivery that waits in the host is kept.

`build.py` names the world `renewal-policy`.
"""

from typing import Any

from wit_world.exports import renewal as contract
from wit_world.exports.renewal import Answer
from wit_world.imports.delivery import Lease, Message, Standing

from . import state
from .observer import observer
from .policy import *
from .policy import lifecycle_of, millis, told


def renew(length: float) -> Answer:
    """Keep it for so many milliseconds from now."""
    return contract.Answer_Renew(millis(length))


def release() -> Answer:
    """Give it back to the broker at once."""
    return contract.Answer_Release()


def lapse() -> Answer:
    """Let it run out; the broker hands it out again then."""
    return contract.Answer_Lapse()


def renewal_policy(policy: Any) -> tuple[type, type]:
    """`Lifecycle` and `Renewal` of a policy with `describe()`, `configure(rules)` and `decide(lease)`.

    The module of the policy must have both, by these names.
    """

    class Renewal:
        @told
        def decide(self, lease: Lease) -> Answer:
            answer = policy.decide(lease)
            if not isinstance(answer, Answer):
                raise TypeError(f"it answered {answer!r} and not renew(…), release() or lapse()")
            return answer

    return lifecycle_of(policy), Renewal
