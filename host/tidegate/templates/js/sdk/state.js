// State of the host: it outlives instances and reloads, and is shared by all flows that use the policy. Names and keys
// are the policy's own.

import * as host from 'tidegate:policy/state@1.0.0';

import { millis } from './policy.js';

export const state = {
  /**
   * Takes `tokens` from the bucket of `key`: 0 when they were taken, else the milliseconds until they could be, with
   * nothing taken.
   */
  take: (bucket, key, tokens, { ratePerSecond, burst }) =>
    Number(host.take(bucket, key, tokens, { ratePerSecond, burst })),

  /**
   * Adds to a counter and answers its new value. It forgets itself after `ttl` milliseconds without a change.
   *
   * Only 0 and more can be added: the JavaScript engine aborts on a signed number below zero, without a word.
   */
  add: (counter, key, delta, ttl) => {
    if (!Number.isSafeInteger(delta) || delta < 0) {
      throw new RangeError(`a whole number from 0 can be added to a counter, and not ${delta}`);
    }
    return Number(host.add(counter, key, BigInt(delta), millis(ttl)));
  },

  /** The value of a counter, 0 when it was never changed or has forgotten itself. */
  get: (counter, key) => Number(host.get(counter, key)),
};
