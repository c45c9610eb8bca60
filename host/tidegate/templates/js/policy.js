// The policy `{{name}}`: holds back a key that is too busy.
//
// `describe` says what `rules.toml` may set, `configure` gets it as it was described, `decide` is asked about each
// message. Fields of the class are a cache: the host makes fresh instances whenever it likes. What must be remembered
// goes into the host's `state`. Durations are milliseconds.

import { defer, deliver, duration, integer, number, throttlePolicy } from './sdk/throttle.js';

class Policy {
  describe() {
    return {
      name: '{{name}}',
      version: '0.1.0',
      summary: 'Holds back a key that is too busy.',
      parameters: {
        limit: number('Deliveries of one key a second.', { default: 100, min: 0, max: 1e6 }),
        delay: duration('For how long a message of a busy key is held back.', { default: '1s' }),
        attempts: integer('A message handed out so often is delivered, however busy its key is.', { default: 5, min: 1 }),
      },
    };
  }

  configure(rules) {
    this.rules = rules;
  }

  decide(message) {
    const { limit, delay, attempts } = this.rules;
    if (message.standing().keyRate <= limit || message.attempt() >= attempts) {
      return deliver();
    }
    return defer(delay, `${message.key()} is busy`);
  }
}

export const { lifecycle, throttle } = throttlePolicy(new Policy());
