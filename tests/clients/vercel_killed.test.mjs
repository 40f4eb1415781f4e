// Creates with the SDK of the Vercel Sandbox service, unmodified, while the server is killed as by kill -9 and started again:
// INSULA_PROGRAM is the server, INSULA_URL says where it is to be. Node.js is started with insula-vercel.mjs, in the network of
// tests/support/on_internet.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

import { Sandbox } from '@vercel/sandbox';

const { INSULA_PROGRAM: program, INSULA_URL: url } = process.env;
assert.ok(program && url, 'INSULA_PROGRAM or INSULA_URL is not set');

const key = 'key-of-this-test';
const limit = { timeout: 120_000 };
const scope = { token: key, teamId: 'team_test' };
const source = { type: 'git', url: 'http://a.example/git/app.git' };

let state, server, kills = 0;

/** A server on the state of the one before. It kills itself at the step, if one is given, and there is a new one at once. */
function start(step) {
  const words = ['--pdeathsig', 'INT', program, 'serve', '--listen', new URL(url).host, '--state', state];
  const made = spawn('setpriv', words, { env: { ...process.env, SANDBOX_API_KEY: key, INSULA_FAILPOINT: step ?? '' }, stdio: ['ignore', 'pipe', 'pipe'] });
  const mine = { process: made, ended: once(made, 'exit'), said: '' };
  made.stderr.on('data', (some) => { mine.said = (mine.said + some).slice(-20_000); });
  mine.ready = new Promise((resume, fail) => {
    createInterface({ input: made.stdout }).on('line', (line) => { if (line.startsWith('insula is ready on ')) resume(); });
    made.on('exit', () => { fail(new Error(`the server has ended: ${mine.said}`)); });
  });
  mine.ready.catch(() => {});
  made.on('exit', (_, signal) => {
    if (signal !== 'SIGKILL' || step === undefined || mine.stopping) return;
    ++kills;
    start();
  });
  server = mine;
  return mine.ready;
}

/** Nothing of it is left then. */
async function stop() {
  if (server.process.exitCode !== null || server.process.signalCode !== null) return;
  server.stopping = true;
  server.process.kill('SIGINT');
  assert.deepEqual(await server.ended, [0, null], server.said);
  for (let attempt = 0; attempt < 300; ++attempt) {
    const all = await Promise.all((await readdir('/proc')).filter((each) => /^\d+$/.test(each))
      .map((each) => readFile(`/proc/${each}/cmdline`, 'utf8').catch(() => '')));
    if (!all.some((each) => each.includes(state))) return;
    await delay(100);
  }
  assert.fail('a process of the server is left');
}

/** As programs do: the SDK asks up to three times, and the program once more. */
async function create(options) {
  for (let attempt = 0; ; ++attempt) {
    try {
      return await Sandbox.create({ ...scope, ...options });
    } catch (why) {
      if (attempt === 3) throw why;
      if (why.response) {
        // Only what was finished before the kill is there already.
        assert.equal(why.response.status, 400, why.message);
        assert.match(why.message, /already exists/);
        return Sandbox.get({ ...scope, projectId: options.projectId, name: options.name });
      }
      await server.ready;
    }
  }
}

async function isWhole(box, { projectId, env }) {
  const done = await box.runCommand('sh', ['-c', 'id -un; pwd; echo $WHICH; ls -A; cat app/which; git -C app status --porcelain; sudo id -u; ls -A /tmp']);
  assert.equal(await done.stdout(), `vercel-sandbox\n/vercel/sandbox\n${env.WHICH}\napp\nsecond\n0\n`);
  assert.equal(box.networkPolicy, 'deny-all');
  const closed = await box.runCommand('curl', ['-sS', '-m', '10', 'http://a.example/']);
  assert.notEqual(closed.exitCode, 0);
  const { sandboxes } = await Sandbox.list({ ...scope, projectId });
  assert.deepEqual(sandboxes.map((each) => each.name), [box.name]);
  const { sessions } = await box.listSessions();
  assert.deepEqual(sessions.map((each) => [each.id, each.status]), [[box.currentSession().sessionId, 'running']]);
}

describe('a create whose server is killed', () => {
  before(async () => { state = await mkdtemp('/var/tmp/insula-killed-'); }, limit);
  afterEach(stop, limit);
  after(() => rm(state, { recursive: true, force: true }), limit);

  // Before and after what is written, in the order of a create, and in the midst of its two commands.
  const steps = ['object.write#1', ...[1, 2, 3, 4, 5, 6].map((n) => `object.durable#${n}`), 'sandbox.made',
    'exec.start', 'exec.started', 'exec.over', 'exec.started#2', 'exec.over#2'];
  for (const step of steps) {
    test(`at ${step}`, limit, async () => {
      const before = kills;
      await start(step);
      const options = { projectId: `prj_${step.replace(/\W/g, '_')}`, name: 'wanted', source, timeout: 600_000, networkPolicy: 'deny-all', env: { WHICH: step } };
      const box = await create(options);
      assert.equal(kills, before + 1, 'the server was not killed');
      await isWhole(box, options);
      await box.delete();
      assert.deepEqual((await Sandbox.list({ ...scope, projectId: options.projectId })).sandboxes, []);
    });
  }
});
