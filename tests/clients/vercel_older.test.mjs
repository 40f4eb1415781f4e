// The last 2.x of the Vercel Sandbox service's SDK, unmodified, against a running Insula: the basic flow of a program that was made
// for it. INSULA_URL says where, INSULA_API_KEY with which key. Node.js is started with insula-vercel.mjs.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';

import { Sandbox, Snapshot } from 'vercel-sandbox-2';

const { INSULA_URL: url, INSULA_API_KEY: key } = process.env;
assert.ok(url && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 120_000 };
const scope = { token: key, teamId: 'team_test', projectId: 'prj_older' };

describe('the SDK 2.9.2', () => {
  let box;
  before(async () => {
    const { version } = JSON.parse(await readFile(new URL('node_modules/vercel-sandbox-2/package.json', import.meta.url), 'utf8'));
    assert.equal(version, '2.9.2');
    box = await Sandbox.create({ ...scope, name: 'older', timeout: 600_000, runtime: 'node24', ports: [3000], env: { GREETING: 'hello' }, tags: { kind: 'test' } });
  }, limit);
  after(async () => { await box?.delete().catch(() => {}); }, limit);

  test('a sandbox is made, found and listed', limit, async () => {
    assert.deepEqual([box.name, box.status, box.timeout, box.tags], ['older', 'running', 600_000, { kind: 'test' }]);
    assert.equal((await Sandbox.get({ ...scope, name: 'older' })).status, 'running');
    assert.deepEqual((await Sandbox.list(scope)).sandboxes.map((each) => each.name), ['older']);
    await assert.rejects(Sandbox.get({ ...scope, name: 'nobody' }), (why) => why.response?.status === 404);
  });
  test('a sandbox without a runtime is one', limit, async () => {
    const plain = await Sandbox.create({ ...scope, timeout: 60_000 });
    assert.equal(plain.runtime, undefined);
    assert.equal(await (await plain.runCommand('pwd')).stdout(), '/vercel/sandbox\n');
    await plain.delete();
  });
  test('commands run, waited for and on their own', limit, async () => {
    const done = await box.runCommand({ cmd: 'sh', args: ['-c', 'echo $GREETING $OTHER; echo err >&2; pwd; exit 4'], env: { OTHER: 'world' }, cwd: '/tmp' });
    assert.deepEqual([done.exitCode, await done.stdout(), await done.stderr()], [4, 'hello world\n/tmp\n', 'err\n']);
    assert.equal(await (await box.runCommand({ cmd: 'id', args: ['-u'], sudo: true })).stdout(), '0\n');
    const own = await box.runCommand({ cmd: 'sh', args: ['-c', 'echo one; echo two; exit 5'], detached: true });
    let said = '';
    for await (const each of own.logs()) said += each.data;
    assert.deepEqual([said, (await own.wait()).exitCode], ['one\ntwo\n', 5]);
    const sleeps = await box.runCommand({ cmd: 'sleep', args: ['1000'], detached: true });
    await sleeps.kill('SIGTERM');
    assert.equal((await sleeps.wait()).exitCode, 143);
  });
  test('files are written and read', limit, async () => {
    await box.mkDir('made');
    await box.writeFiles([{ path: 'made/text', content: Buffer.from('as text') }]);
    assert.equal((await box.readFileToBuffer({ path: 'made/text' })).toString(), 'as text');
    assert.equal(await box.readFile({ path: 'nothing' }), null);
    assert.deepEqual(await box.fs.readdir('made'), ['text']);
  });
  test('a port has a domain, where its server is', limit, async () => {
    const server = await box.runCommand({ cmd: 'node', args: ['-e', 'require("http").createServer((_, to) => to.end("here")).listen(3000, () => console.log("up"))'], detached: true });
    for await (const each of server.logs()) if (each.data.includes('up')) break;
    assert.equal(await (await fetch(box.domain(3000))).text(), 'here');
    await server.kill('SIGKILL');
  });
  test('time, tags and network policy change', limit, async () => {
    await box.extendTimeout(60_000);
    await box.update({ tags: { kind: 'other' }, networkPolicy: 'deny-all' });
    assert.deepEqual([box.tags, box.networkPolicy], [{ kind: 'other' }, 'deny-all']);
    assert.notEqual((await box.runCommand('curl', ['-sS', '-m', '5', 'http://192.0.2.1/'])).exitCode, 0);
    await box.update({ networkPolicy: 'allow-all' });
  });
  test('it stops, and goes on with its files', limit, async () => {
    await box.writeFiles([{ path: 'kept', content: Buffer.from('kept') }]);
    const snapshot = await box.snapshot();
    assert.equal((await Snapshot.get({ ...scope, snapshotId: snapshot.snapshotId })).status, 'created');
    assert.equal((await box.readFileToBuffer({ path: 'kept' })).toString(), 'kept');
    await box.stop();
    assert.equal((await Sandbox.get({ ...scope, name: 'older', resume: false })).status, 'stopped');
    const again = await Sandbox.get({ ...scope, name: 'older' });
    assert.equal(await (await again.runCommand('cat', ['kept'])).stdout(), 'kept');
    await again.delete();
    await assert.rejects(Sandbox.get({ ...scope, name: 'older' }), (why) => why.response?.status === 404);
  });
});
