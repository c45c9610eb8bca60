// Policies that choose the partition of a record that a sink writes. `package.json` names the world
// `partitioner-policy`, and `policy.js` exports `lifecycle` and `partitioner`.

import { lifecycleOf, told } from './policy.js';

export * from './policy.js';

/**
 * What a policy with `describe()`, `configure(rules)` and `partition(record, partitions)` exports. A record has
 * `topic()`, `key()`, `header(name)`, `valueSize()` and `value(offset, length)`; the answer is a whole number below
 * `partitions`, and the same for the same record.
 */
export function partitionerPolicy(policy) {
  return {
    lifecycle: lifecycleOf(policy),
    partitioner: { partition: told('partition', (record, partitions) => policy.partition(record, partitions)) },
  };
}
