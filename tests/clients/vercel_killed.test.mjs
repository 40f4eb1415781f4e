// Creates and commands with the SDK of the Vercel Sandbox service, unmodified, while the server is killed as by kill -9 and started again:
// INSULA_PROGRAM is the server, INSULA_URL says where it is to be. Node.js is started with insula-vercel.mjs, in the network of
// tests/support/on_internet.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { after, afterEach, before, describe, test } from 'node:test';

import { Sandbox } from '@vercel/sandbox';

import { KillableServer } from './killable_server.mjs';

const { INSULA_PROGRAM: program, INSULA_URL: url } = process.env;
assert.ok(program && url, 'INSULA_PROGRAM or INSULA_URL is not set');

const key = 'key-of-this-test';
const limit = { timeout: 120_000 };
const scope = { token: key, teamId: 'team_test' };
const source = { type: 'git', url: 'http://a.example/git/app.git' };

let server;

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

async function isWhole(box, { projectId, env, source }) {
  const cloned = source ? 'cat app/which; git -C app status --porcelain;' : '';
  const done = await box.runCommand('sh', ['-c', `id -un; pwd; echo $WHICH; ls -A; ${cloned} sudo id -u; ls -A /tmp; readlink /workspace; stat -c %U ~ .`]);
  assert.equal(await done.stdout(), `vercel-sandbox\n/vercel/sandbox\n${env.WHICH}\n${source ? 'app\nsecond\n' : ''}0\n/vercel/sandbox\nvercel-sandbox\nvercel-sandbox\n`);
  assert.equal(box.networkPolicy, 'deny-all');
  const closed = await box.runCommand('curl', ['-sS', '-m', '10', 'http://a.example/']);
  assert.notEqual(closed.exitCode, 0);
  const { sandboxes } = await Sandbox.list({ ...scope, projectId });
  assert.deepEqual(sandboxes.map((each) => each.name), [box.name]);
  const { sessions } = await box.listSessions();
  assert.deepEqual(sessions.map((each) => [each.id, each.status]), [[box.currentSession().sessionId, 'running']]);
}

describe('a create whose server is killed', () => {
  before(async () => { server = new KillableServer({ program, url, key, state: await mkdtemp('/var/tmp/insula-killed-') }); }, limit);
  afterEach(() => server.end(), limit);
  after(() => rm(server.state, { recursive: true, force: true }), limit);

  // Before and after what is written, in the order of a create, and in the midst of the command that fetches its source.
  const written = (count) => ['object.write#1', ...Array.from({ length: count }, (_, i) => `object.durable#${i + 1}`)];
  const steps = [
    ...[...written(6), 'sandbox.made', 'sandbox.named', 'exec.start', 'exec.started', 'exec.over'].map((step) => ({ step, source })),
    ...[...written(4), 'sandbox.made', 'sandbox.named'].map((step) => ({ step })),
  ];
  for (const { step, source } of steps) {
    test(`at ${step}${source ? ', with a source' : ''}`, limit, async () => {
      const before = server.kills;
      await server.start(step);
      const projectId = `prj_${step.replace(/\W/g, '_')}${source ? '_source' : ''}`;
      const options = { projectId, name: 'wanted', source, timeout: 600_000, networkPolicy: 'deny-all', env: { WHICH: step } };
      const box = await create(options);
      assert.equal(server.kills, before + 1, 'the server was not killed');
      await isWhole(box, options);
      await box.delete();
      assert.deepEqual((await Sandbox.list({ ...scope, projectId: options.projectId })).sandboxes, []);
    });
  }
});

// Its sandbox runs on meanwhile, and so does the command if it has begun to run.
describe('a command whose server is killed before it answers', () => {
  before(async () => { server = new KillableServer({ program, url, key, state: await mkdtemp('/var/tmp/insula-killed-') }); }, limit);
  afterEach(() => server.end(), limit);
  after(() => rm(server.state, { recursive: true, force: true }), limit);

  const steps = ['idempotency.claimed', 'exec.start', 'exec.sent', 'idempotency.asked', 'exec.started', 'idempotency.runs'];
  for (const detached of [false, true]) {
    for (const step of steps) {
      test(`${detached ? 'detached' : 'waited for'}, at ${step}, runs once`, limit, async () => {
        await server.start();
        const projectId = `prj_${detached}_${step.replace(/\W/g, '_')}`;
        const box = await Sandbox.create({ ...scope, projectId, name: 'wanted', timeout: 600_000 });
        await server.end('SIGTERM'); // The sandbox is the next server's.
        const before = server.kills;
        await server.start(step);
        const wanted = { cmd: 'sh', args: ['-c', 'echo ran >> runs; echo said; exit 3'], detached };
        const command = await server.persistently(() => box.runCommand(wanted));
        assert.equal(server.kills, before + 1, 'the server was not killed');
        const done = detached ? await command.wait() : command;
        assert.equal(done.exitCode, 3);
        assert.equal(await done.stdout(), 'said\n');
        const found = await box.getCommand(command.cmdId);
        assert.equal(await found.stdout(), 'said\n');
        // The same words once more are another command.
        await box.runCommand({ ...wanted, detached: false });
        const runs = await box.runCommand('cat', ['runs']);
        assert.equal(await runs.stdout(), 'ran\nran\n');
        const commands = `${url}/v2/sandboxes/sessions/${box.currentSession().sessionId}/cmd`;
        const all = await (await fetch(commands, { headers: { authorization: `Bearer ${key}` } })).json();
        assert.deepEqual(all.commands.map((each) => each.exitCode), [0, 3, 3]);
        await box.delete();
      });
    }
  }
});
