// Policies that decide whether the lease of a delivery that waits in the host is kept. `package.json` names the world
// `renewal-policy`, and `policy.js` exports `lifecycle` and `renewal`.

import { Message, observerOf } from './message.js';
import { lifecycleOf, millis, told } from './policy.js';

export * from './policy.js';
export { state } from './state.js';

/** Keep it for so many milliseconds from now. */
export function renew(length) {
  return { tag: 'renew', val: millis(length) };
}

/** Give it back to the broker at once. */
export function release() {
  return { tag: 'release' };
}

/** Let it run out; the broker hands it out again then. */
export function lapse() {
  return { tag: 'lapse' };
}

/** The lease that a policy is asked about, valid for the length of a call. */
export class Lease {
  #host;
  #hostMessage;
  #message;

  constructor(host) {
    this.#host = host;
  }

  /** What is leased. */
  message() {
    this.#hostMessage ??= this.#host.message();
    this.#message ??= new Message(this.#hostMessage);
    return this.#message;
  }

  /** Gives back what the call was given. The host lets an instance hold few objects, and a collector comes late. */
  end() {
    this.#hostMessage?.[Symbol.dispose ?? Symbol.for('dispose')]();
  }

  /** Milliseconds until it ends. */
  remaining() {
    return Number(this.#host.remaining());
  }

  /** Milliseconds that it was taken for at first. */
  length() {
    return Number(this.#host.length());
  }

  /** How often it was renewed already. */
  renewals() {
    return this.#host.renewals();
  }

  /** Whether a sink has it; else it waits in the queue. */
  emitted() {
    return this.#host.emitted();
  }

  /** Deliveries that the sink gets before this one, 0 when it is next or emitted. */
  queuePosition() {
    return this.#host.queuePosition();
  }
}

/** What a policy with `describe()`, `configure(rules)` and `decide(lease)` exports. */
export function renewalPolicy(policy) {
  return {
    lifecycle: lifecycleOf(policy),
    renewal: {
      decide: told('decide', (lease) => {
        const asked = new Lease(lease);
        try {
          const answer = policy.decide(asked);
          if (answer?.tag === undefined) {
            throw new TypeError(`it answered ${answer} and not renew(…), release() or lapse()`);
          }
          return answer;
        } finally {
          asked.end();
        }
      }),
    },
    observer: observerOf(policy),
  };
}
