// examples/vercel/persistent.mjs, with a package of the tests' internet, while the server and its spawner are killed between its
// runs: INSULA_PROGRAM is the server, INSULA_URL says where it is to be, INSULA_MODULE is insula-vercel.mjs. Runs below
// tests/support/on_internet.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { after, test } from 'node:test';
import { promisify } from 'node:util';

import { KillableServer } from './killable_server.mjs';

const { INSULA_PROGRAM: program, INSULA_URL: url, INSULA_MODULE: module } = process.env;
assert.ok(program && url && module, 'INSULA_PROGRAM, INSULA_URL or INSULA_MODULE is not set');

const key = 'key-of-this-test';
const example = new URL('persistent.mjs', import.meta.url).pathname;
const server = new KillableServer({ program, url, key, state: await mkdtemp('/var/tmp/insula-persistent-') });
after(async () => {
  await server.end();
  await rm(server.state, { recursive: true, force: true });
});

async function visit() {
  const env = { ...process.env, VERCEL_TOKEN: key, VERCEL_TEAM_ID: 'team_example', VERCEL_PROJECT_ID: 'prj_example', PACKAGE: 'http://a.example/tiny/-/tiny-1.0.0.tgz' };
  const { stdout } = await promisify(execFile)(process.execPath, ['--import', module, example], { env });
  return stdout;
}

/** All that a server which has ended has left. */
async function killWhatIsLeft() {
  let killed = 0;
  for (const pid of (await readdir('/proc')).filter((each) => /^\d+$/.test(each) && each !== String(process.pid))) {
    const words = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    if (!words.includes(server.state)) continue;
    process.kill(Number(pid), 'SIGKILL');
    ++killed;
  }
  return killed;
}

test('what was installed is there, over the ends of the server and of its spawner', { timeout: 240_000 }, async () => {
  await server.start();
  const first = await visit();
  assert.match(first, /^Installing http:\/\/a\.example/m);
  assert.match(first, /^It has: .*\btiny\b/m);
  assert.match(first, /^Visit 1\.$/m);
  const left = /^Stopped with (snap_\S+), \d+ KiB\.$/m.exec(first)[1];

  await server.kill();
  const second = await visit();
  assert.doesNotMatch(second, /Installing/);
  assert.match(second, new RegExp(`^Going on with ${left}\\.$`, 'm'));
  assert.match(second, /^It has: .*\btiny\b/m);
  assert.match(second, /^Visit 2\.$/m);

  await server.end('SIGTERM');
  await killWhatIsLeft();
  await server.start();
  assert.match(await visit(), /^It has: .*\btiny\b[^]*^Visit 3\.$/m);

  await server.end();
  await server.start();
  assert.match(await visit(), /^It has: .*\btiny\b[^]*^Visit 4\.$/m);
});
