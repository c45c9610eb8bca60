"""Being told how deliveries ended."""

from typing import Any

from .policy import told


def observer(policy: Any) -> type:
    """The `Observer` of a throttle or renewal policy that has `observe(outcomes)`.

    The module of the policy must have it by this name, and `build.py` names the world `observing-throttle-policy` or
    `observing-renewal-policy`.
    """

    class Observer:
        @told
        def observe(self, outcomes: list) -> None:
            policy.observe(outcomes)

    return Observer
