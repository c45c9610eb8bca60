// Makes `{{name}}.wasm` of `policy.js` and what it imports.

import { spawnSync } from 'node:child_process';
import { readFile, rename, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

import { componentize } from '@bytecodealliance/componentize-js';

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
const { name, tidegate } = JSON.parse(await readFile(path('package.json'), 'utf8'));

// Says where a mistake is; what comes next would only count them.
if (spawnSync(process.execPath, ['--check', path('policy.js')], { stdio: 'inherit' }).status !== 0) {
  process.exit(1);
}

try {
  const { component } = await componentize({
    sourcePath: path('policy.js'),
    witPath: path('wit/policy.wit'),
    worldName: tidegate.world,
    // A policy gets nothing from its surroundings but what `wit/policy.wit` gives it, and loads only without these.
    disableFeatures: ['stdio', 'random', 'clocks', 'http', 'fetch-event'],
  });
  // Written aside and renamed, so that a host that watches the file sees the old one or the new one.
  const output = path(`${name}.wasm`);
  await writeFile(`${output}.new`, component);
  await rename(`${output}.new`, output);
  console.log(`${name}.wasm: ${component.length} bytes`);
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
