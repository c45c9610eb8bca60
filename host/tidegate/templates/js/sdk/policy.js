// What policies of every kind share: the lifecycle, the log, the clock, and how failures reach the host.

import * as hostClock from 'tidegate:policy/clock@1.0.0';
import { write } from 'tidegate:policy/log@1.0.0';

import { RuleError, describeParameters, readRules } from './rules.js';

export * from './rules.js';

/** Lines for the people who run the host. */
export const log = {
  debug: (message) => write('debug', String(message)),
  info: (message) => write('info', String(message)),
  warn: (message) => write('warn', String(message)),
  error: (message) => write('error', String(message)),
};

/** Time and chance, the same for the whole of a call, so that a recorded decision replays exactly. */
export const clock = {
  /** Milliseconds since the Unix epoch. */
  now: () => Number(hostClock.now()),
  /** Milliseconds of a clock that never goes back. */
  elapsed: () => Number(hostClock.elapsed()),
  /** A number from 0 up to but not including 1. */
  random: () => Number(hostClock.random() >> 11n) / 2 ** 53,
};

// There is no other time, chance or output in a policy: without these, the time is that of the build.
globalThis.Date = class extends Date {
  static now() {
    return clock.now();
  }

  constructor(...parts) {
    super(...(parts.length === 0 ? [clock.now()] : parts));
  }
};
Math.random = clock.random;
const line = (write) => (...values) => write(values.map(String).join(' '));
globalThis.console = { ...log, log: log.info };
for (const level of Object.keys(console)) {
  console[level] = line(console[level]);
}

/** The `lifecycle` that a policy exports. */
export function lifecycleOf(policy) {
  return {
    describe: told('describe', () => {
      const { name, version, summary, parameters = {} } = policy.describe();
      return { name, version, summary, parameters: describeParameters(parameters) };
    }),
    configure: told('configure', (json) => {
      policy.configure(readRules(policy.describe().parameters ?? {}, json));
    }),
  };
}

/** `call`, whose exceptions are told in the log before they end the instance: nothing else would carry their text. */
export function told(name, call) {
  return (argument, second) => {
    try {
      return call(argument, second);
    } catch (error) {
      if (error instanceof RuleError) {
        // What is thrown without being an `Error` is the contract's own failure.
        throw { key: error.key, message: error.message };
      }
      if (error instanceof Failure) {
        throw error.payload;
      }
      log.error(error instanceof Error ? `${name}: ${error}\n${error.stack}` : `${name}: it threw ${error}`);
      throw error;
    }
  };
}

/** A failure that the contract has a case for. */
export class Failure extends Error {
  constructor(tag, message) {
    super(message);
    this.payload = { tag, val: message };
  }
}

/** Milliseconds as the contract has them. */
export function millis(value) {
  if (typeof value !== 'number' || !(value >= 0 && value < 2 ** 64)) {
    throw new TypeError(`${value} is no number of milliseconds`);
  }
  return BigInt(Math.round(value));
}
