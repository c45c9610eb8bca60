"""Policies that choose the partition of a record that a sink writes. `build.py` names the world `partitioner-policy`."""

from typing import Any

from wit_world.imports.outgoing import Record

from .policy import *
from .policy import lifecycle_of, told


def partitioner_policy(policy: Any) -> tuple[type, type]:
    """`Lifecycle` and `Partitioner` of a policy with `describe()`, `configure(rules)` and `partition(record, partitions)`.

    The answer is a whole number below `partitions`, and the same for the same record. The module of the policy must
    have both classes, by these names.
    """

    class Partitioner:
        @told
        def partition(self, record: Record, partitions: int) -> int:
            return policy.partition(record, partitions)

    return lifecycle_of(policy), Partitioner
