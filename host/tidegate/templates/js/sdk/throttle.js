// Policies that decide about each message before the sink sees it: now, later or never.

import { Message, observerOf } from './message.js';
import { lifecycleOf, millis, told } from './policy.js';

export * from './policy.js';
export { state } from './state.js';

/** Hand it to the sink. */
export function deliver() {
  return { tag: 'deliver' };
}

/** Give it back to the broker for `delay` milliseconds. */
export function defer(delay, reason) {
  return { tag: 'defer', val: { delay: millis(delay), reason } };
}

/** It can never be handled: dead-letter it. */
export function reject(reason) {
  return { tag: 'reject', val: reason };
}

/** Nobody wants it: settle it as done without handing it to the sink. */
export function discard(reason) {
  return { tag: 'discard', val: reason };
}

/**
 * What a policy with `describe()`, `configure(rules)` and `decide(message)` exports: `lifecycle` and `throttle`, and
 * `observer` if it has `observe(outcomes)` and `package.json` names the world `observing-throttle-policy`.
 */
export function throttlePolicy(policy) {
  return {
    lifecycle: lifecycleOf(policy),
    throttle: {
      decide: told('decide', (message) => {
        const verdict = policy.decide(new Message(message));
        if (verdict?.tag === undefined) {
          throw new TypeError(`it answered ${verdict} and not deliver(), defer(…), reject(…) or discard(…)`);
        }
        return verdict;
      }),
    },
    observer: observerOf(policy),
  };
}
