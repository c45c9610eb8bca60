// The message that a policy is asked about, with plain numbers, and how deliveries ended.

import { told } from './policy.js';

/** Valid for the length of a call. What is not asked for is not copied. */
export class Message {
  #host;

  constructor(host) {
    this.#host = host;
  }

  /** Name of the source in the host's configuration. */
  source() {
    return this.#host.source();
  }

  topic() {
    return this.#host.topic();
  }

  /** The lite topic, for brokers that have them. */
  liteTopic() {
    return this.#host.liteTopic();
  }

  /** What fairness is counted by: the lite topic, a header or the record key, as the flow says. */
  key() {
    return this.#host.key();
  }

  /** The broker's own name of the message. */
  id() {
    return this.#host.id();
  }

  tag() {
    return this.#host.tag();
  }

  /** First value of a property or header, when it is text. */
  property(name) {
    return this.#host.property(name);
  }

  /** Pairs of a name and its bytes. */
  properties() {
    return this.#host.properties();
  }

  /** Bytes. */
  bodySize() {
    return this.#host.bodySize();
  }

  /** At most `length` bytes from `offset`; fewer, down to none, at the end. */
  body(offset = 0, length = this.bodySize()) {
    return this.#host.body(offset, length);
  }

  /** 1 at the first handing-out. */
  attempt() {
    return this.#host.attempt();
  }

  /** Milliseconds since it was produced. */
  age() {
    return Number(this.#host.age());
  }

  /** Milliseconds since this host first received it. */
  waited() {
    return Number(this.#host.waited());
  }

  /** Milliseconds by which this message has been deferred so far. */
  deferred() {
    return Number(this.#host.deferred());
  }

  /**
   * How its key stands in the flow: `{ keyInFlight, flowInFlight, flowBudget, flowQueued, flowEmitted, activeKeys,
   * keyRate, flowRate, flowThroughput, keyShare }`.
   */
  standing() {
    return this.#host.standing();
  }
}

/**
 * The `observer` that a policy exports for the worlds `observing-…`: its `observe(outcomes)` gets
 * `{ key, id, ending, attempt, spent, cost }` of each.
 */
export function observerOf(policy) {
  return {
    observe: told('observe', (outcomes) =>
      policy.observe(outcomes.map((outcome) => ({ ...outcome, spent: Number(outcome.spent) }))),
    ),
  };
}
