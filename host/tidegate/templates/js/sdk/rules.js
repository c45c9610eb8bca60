// What a rules file may set: each parameter is described once, and read by its description.

/** One rule that makes no sense. Throw it from `configure` for what a description cannot say. */
export class RuleError extends Error {
  /**
   * @param {string} key Path of the key, such as `rule[2].rate`; empty when it is the whole.
   * @param {string} message What is wrong and what was expected.
   */
  constructor(key, message) {
    super(message);
    this.key = key;
  }
}

// A parameter is `{ kind, summary, required, default, read(value, path) }`; `kind` is one of the contract's kinds.
// What every parameter takes is `{ required, default }`, the default as a rules file would write it.

/** A number, with or without a fraction, from `min` to `max`. */
export function number(summary, { min = -Number.MAX_VALUE, max = Number.MAX_VALUE, ...options } = {}) {
  return parameter('number', summary, options, (value, path) => {
    expect(value, 'number', 'a number', path);
    return within(value, min, max, path);
  });
}

/** A whole number from `min` to `max`. */
export function integer(
  summary,
  { min = Number.MIN_SAFE_INTEGER, max = Number.MAX_SAFE_INTEGER, ...options } = {},
) {
  return parameter('integer', summary, options, (value, path) => {
    expect(value, 'number', 'a whole number', path);
    if (!Number.isInteger(value)) {
      throw new RuleError(path, `must be a whole number, not ${value}`);
    }
    return within(value, min, max, path);
  });
}

/** `true` or `false`. */
export function boolean(summary, options = {}) {
  return parameter('boolean', summary, options, (value, path) =>
    expect(value, 'boolean', '`true` or `false`', path),
  );
}

/** A string. */
export function text(summary, options = {}) {
  return parameter('text', summary, options, (value, path) => expect(value, 'string', 'a string', path));
}

/** One of some words. */
export function choice(summary, choices, options = {}) {
  return parameter('text', summary, options, (value, path) => {
    expect(value, 'string', 'a string', path);
    if (!choices.includes(value)) {
      throw new RuleError(path, `must be \`${choices.join('` or `')}\`, not \`${value}\``);
    }
    return value;
  });
}

const MILLIS = { ms: 1, s: 1_000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000 };

/** A duration such as `250ms`, `5s` or `1m30s`; read as milliseconds. */
export function duration(summary, options = {}) {
  return parameter('duration', summary, options, (value, path) => {
    const written = expect(value, 'string', 'a string', path).trim();
    const parts = [...written.matchAll(/\s*(\d+)([a-z]+)/gy)];
    const whole = parts.map(([part]) => part).join('') === written;
    const millis = parts.reduce((sum, [, count, unit]) => sum + Number(count) * (MILLIS[unit] ?? NaN), 0);
    if (parts.length === 0 || !whole || !Number.isSafeInteger(millis)) {
      throw new RuleError(path, `\`${value}\` is no duration; write it such as \`250ms\`, \`5s\` or \`1m30s\``);
    }
    return millis;
  });
}

const BYTES = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

/** A size such as `512KiB` or `64MiB`; read as bytes. */
export function size(summary, options = {}) {
  return parameter('size', summary, options, (value, path) => {
    const [, count, unit] = /^(\d+)\s*([A-Za-z]+)$/.exec(expect(value, 'string', 'a string', path).trim()) ?? [];
    const bytes = Number(count) * (BYTES[unit] ?? NaN);
    if (!Number.isSafeInteger(bytes)) {
      throw new RuleError(path, `\`${value}\` is no size; write it such as \`512KiB\` or \`64MiB\``);
    }
    return bytes;
  });
}

/** An array whose items are each read as `item`, a parameter or an object of parameters; empty when it is left out. */
export function list(summary, item, options = {}) {
  return parameter('list', summary, { default: [], ...options }, (value, path) => {
    if (!Array.isArray(value)) {
      throw new RuleError(path, `must be an array, not ${kindOf(value)}`);
    }
    return value.map((entry, place) => readItem(item, entry, `${path}[${place}]`));
  });
}

/** A table with the keys of `parameters`. */
export function table(summary, parameters, options = {}) {
  return parameter('table', summary, options, (value, path) => readTable(parameters, value, path));
}

/** A table under names of the user's choice whose values are each read as `item`; read as a `Map`. */
export function named(summary, item, options = {}) {
  return parameter('table', summary, options, (value, path) => {
    expectTable(value, path);
    return new Map(
      Object.entries(value).map(([name, entry]) => [name, readItem(item, entry, pathOf(path, name))]),
    );
  });
}

/** Reads the JSON object that the host gives. */
export function readRules(parameters, json) {
  return readTable(parameters, JSON.parse(json), '');
}

/** The parameters as the contract describes them. */
export function describeParameters(parameters) {
  return Object.entries(parameters).map(([name, { kind, required, summary, default: standard }]) => ({
    name,
    kind,
    required,
    default: standard === undefined || kind === 'list' ? undefined : JSON.stringify(standard),
    summary,
  }));
}

function parameter(kind, summary, { required = false, default: standard }, read) {
  return { kind, summary, required, default: standard, read };
}

function readItem(item, value, path) {
  return typeof item.read === 'function' ? item.read(value, path) : readTable(item, value, path);
}

function readTable(parameters, value, path) {
  expectTable(value, path);
  for (const key of Object.keys(value)) {
    if (!Object.hasOwn(parameters, key)) {
      const known = Object.keys(parameters).join('`, `');
      throw new RuleError(pathOf(path, key), `unknown key; known here are \`${known}\``);
    }
  }
  const entries = Object.entries(parameters).map(([key, { read, required, default: standard }]) => {
    const found = Object.hasOwn(value, key) ? value[key] : standard;
    if (found === undefined && required) {
      throw new RuleError(pathOf(path, key), 'is missing');
    }
    return [key, found === undefined ? undefined : read(found, pathOf(path, key))];
  });
  return Object.fromEntries(entries);
}

function expect(value, type, what, path) {
  if (typeof value !== type) {
    throw new RuleError(path, `must be ${what}, not ${kindOf(value)}`);
  }
  return value;
}

function expectTable(value, path) {
  if (kindOf(value) !== 'a table') {
    throw new RuleError(path, `must be a table, not ${kindOf(value)}`);
  }
}

function within(value, min, max, path) {
  if (value < min || value > max) {
    throw new RuleError(path, `must be ${min} to ${max}, not ${value}`);
  }
  return value;
}

function kindOf(value) {
  if (value === null) {
    return 'nothing';
  }
  if (Array.isArray(value)) {
    return 'an array';
  }
  return { boolean: 'a boolean', number: 'a number', string: 'a string' }[typeof value] ?? 'a table';
}

function pathOf(path, key) {
  return path === '' ? key : `${path}.${key}`;
}
