// Policies that say whom the host is to a broker or another service. `package.json` names the world
// `credential-resolver`, and `policy.js` exports `lifecycle` and `credentials`.
//
// Texts of failures and lines of the log must hold no secret.

import { get } from 'tidegate:policy/env@1.0.0';
import { read } from 'tidegate:policy/files@1.0.0';
import { fetch } from 'tidegate:policy/http@1.0.0';

import { Failure, lifecycleOf, millis, told } from './policy.js';

export * from './policy.js';

/** An environment variable of the host, by name; `undefined` when it is not granted or not set. */
export const environment = get;

/** The bytes of a file `NAME/rest`, where NAME is that of a granted directory. Throws when it cannot be had. */
export function readFile(path) {
  return granted(`the file \`${path}\``, () => read(path));
}

/**
 * An HTTP request through the host: `{ method, url, headers, body }` to `{ status, headers, body }`, where headers are
 * pairs and bodies are bytes. Throws when there is no answer.
 */
export function request({ method = 'GET', url, headers = [], body = new Uint8Array() }) {
  return granted('the request', () => fetch({ method, url, headers, body }));
}

/** Asking again later may help. To be thrown. */
export const unavailable = (message) => new Failure('unavailable', message);

/** Asking again does not help until somebody changes something. To be thrown. */
export const denied = (message) => new Failure('denied', message);

export const none = () => ({ tag: 'none' });
export const bearer = (token) => ({ tag: 'bearer', val: token });
export const login = (username, password) => ({ tag: 'login', val: { username, password } });
export const accessKey = (id, secret, sessionToken) => ({ tag: 'access-key', val: { id, secret, sessionToken } });
export const identity = (certificateChain, privateKey) => ({
  tag: 'identity',
  val: { certificateChain, privateKey },
});

/**
 * What a policy with `describe()`, `configure(rules)` and `resolve({ endpoint, purpose })` exports. `resolve` answers
 * `{ secret, validFor }`, where `validFor` are milliseconds or nothing.
 */
export function credentialResolver(policy) {
  return {
    lifecycle: lifecycleOf(policy),
    credentials: {
      resolve: told('resolve', (asked) => {
        const { secret, validFor } = policy.resolve(asked);
        return { secret, validFor: validFor === undefined ? undefined : millis(validFor) };
      }),
    },
  };
}

function granted(what, call) {
  try {
    return call();
  } catch (error) {
    const { tag, val } = error.payload ?? error;
    throw unavailable(`${what} cannot be had: ${val === undefined ? tag : `${tag}: ${val}`}`);
  }
}
