// One sandbox as all three APIs see it: made with the SDK of the Vercel Sandbox service, with OpenSandbox's client, or by the
// routes of the sandbox bridge, and used with the other two. INSULA_URL says where, INSULA_API_KEY
// with which key. Node.js is started with insula-vercel.mjs.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { ConnectionConfig, Sandbox as OpenSandbox, SandboxManager } from '@alibaba-group/opensandbox';
import { Sandbox as VercelSandbox } from '@vercel/sandbox';

const { INSULA_URL: node, INSULA_API_KEY: key } = process.env;
assert.ok(node && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 120_000 };
const scope = { token: key, teamId: 'team_test', projectId: 'prj_test' };
const connectionConfig = new ConnectionConfig({ domain: node, apiKey: key });

const bridge = (path, options = {}) => fetch(`${node}/v1/sandbox/${path}`, { ...options, headers: { authorization: `Bearer ${key}` } });
async function exec(id, ...argv) {
  const answer = await bridge(`${id}/exec`, { method: 'POST', body: JSON.stringify({ argv }) });
  assert.equal(answer.status, 200, await answer.clone().text());
  const of = (name) => new RegExp(`event: ${name}\\ndata: (.*)`, 'g');
  const text = await answer.text();
  return [...text.matchAll(of('stdout'))].map((each) => Buffer.from(each[1], 'base64').toString()).join('');
}

describe('one sandbox', () => {
  let made, other, id;
  before(async () => {
    made = await VercelSandbox.create({ ...scope, name: 'seen', timeout: 600_000, env: { GREETING: 'hello' } });
    id = /^sbx_([a-z2-7]{26})/.exec(made.currentSession().sessionId)[1];
    other = await OpenSandbox.connect({ sandboxId: id, connectionConfig });
  }, limit);
  after(async () => {
    await made?.delete().catch(() => {});
    await other?.close();
  }, limit);

  test('has one state', limit, async () => {
    assert.deepEqual(await (await bridge(`${id}/running`)).json(), { running: true });
    assert.equal((await other.getInfo()).status.state, 'Running');
    assert.equal((await VercelSandbox.get({ ...scope, name: 'seen' })).status, 'running');
    const manager = SandboxManager.create({ connectionConfig });
    const { items } = await manager.listSandboxInfos({ pageSize: 100 });
    assert.ok(items.some((each) => each.id === id));
    await manager.close();
  });

  test('has one directory, by two names', limit, async () => {
    await made.writeFiles([{ path: 'by-vercel', content: 'one' }]);
    assert.equal((await bridge(`${id}/file/workspace/by-bridge`, { method: 'PUT', body: 'two' })).status, 200);
    await other.files.writeFiles([{ path: '/workspace/by-opensandbox', data: 'three' }]);
    const names = 'by-bridge\nby-opensandbox\nby-vercel\n';
    assert.equal(await (await made.runCommand('ls')).stdout(), names);
    assert.equal(await exec(id, 'ls', '/workspace'), names);
    assert.deepEqual((await other.commands.run('cat by-vercel; echo; pwd -P')).logs.stdout.map((each) => each.text), ['one', '/vercel/sandbox']);
    assert.equal(await (await bridge(`${id}/file/workspace/by-opensandbox`)).text(), 'three');
    assert.equal((await made.readFileToBuffer({ path: 'by-bridge' })).toString(), 'two');
  });

  test('has one user, with one environment', limit, async () => {
    const words = ['sh', '-c', 'id -un; echo $GREETING'];
    assert.equal(await (await made.runCommand(words[0], words.slice(1))).stdout(), 'vercel-sandbox\nhello\n');
    assert.equal(await exec(id, ...words), 'vercel-sandbox\nhello\n');
    assert.deepEqual((await other.commands.run(words[2])).logs.stdout.map((each) => each.text), ['vercel-sandbox', 'hello']);
  });

  test('has the same processes, which each can end', limit, async () => {
    const command = await made.runCommand({ cmd: 'sh', args: ['-c', 'trap "exit 5" USR1; echo ready; while :; do sleep 0.05; done'], detached: true });
    for await (const each of command.logs()) if (each.data.includes('ready')) break;
    await exec(id, 'sh', '-c', 'kill -USR1 $(pgrep -of "trap .exit 5")');
    assert.equal((await command.wait()).exitCode, 5);
  });

  test('is gone for all once its run is over, and once it is deleted', limit, async () => {
    await made.stop();
    assert.deepEqual(await (await bridge(`${id}/running`)).json(), { running: false });
    // No request of another API begins a run.
    assert.equal((await bridge(`${id}/exec`, { method: 'POST', body: JSON.stringify({ argv: ['true'] }) })).status, 409);
    assert.notEqual((await other.getInfo()).status.state, 'Running');
    await made.delete();
    await assert.rejects(other.getInfo());
    await assert.rejects(VercelSandbox.get({ ...scope, name: 'seen' }));
  });
});

describe('a sandbox that another API has made', () => {
  async function assert_gone(id) {
    const answer = await fetch(`${node}/v1/sandboxes`, { headers: { authorization: `Bearer ${key}` } });
    assert.deepEqual((await answer.json()).items.filter((each) => each.id === id), []);
  }
  /// As the SDK of the Vercel Sandbox service has it: commands, files, and what is refused.
  async function use_by_vercel(id, user) {
    const found = await VercelSandbox.get({ ...scope, name: `sbx_${id}` });
    assert.deepEqual([found.name, found.status], [`sbx_${id}`, 'running']);
    assert.equal(found.currentSession().sessionId, `sbx_${id}0`);
    assert.equal((await found.readFileToBuffer({ path: 'first' })).toString(), 'first');
    await found.writeFiles([{ path: 'by-vercel/deep', content: 'three' }]);
    await found.mkDir('by-vercel/made');
    assert.equal(await (await found.runCommand('sh', ['-c', 'pwd; id -un; ls by-vercel'])).stdout(), `/workspace\n${user}\ndeep\nmade\n`);
    assert.equal(await (await found.runCommand({ cmd: 'id', args: ['-u'], sudo: true })).stdout(), '0\n');
    const command = await found.runCommand({ cmd: 'sh', args: ['-c', 'echo one; exec sleep 1000'], detached: true });
    for await (const each of command.logs()) if (each.data.includes('one')) break;
    await command.kill();
    assert.equal((await command.wait()).exitCode, 143);
    const listed = await fetch(`${node}/v2/sandboxes/sessions/sbx_${id}0/cmd`, { headers: { authorization: `Bearer ${key}` } });
    assert.deepEqual((await listed.json()).commands.map((each) => [each.name, each.exitCode]), [['sh', 143], ['id', 0], ['sh', 0]]);
    assert.equal(await (await found.getCommand(command.cmdId)).stdout(), 'one\n');
    const conflict = (why) => why.response?.status === 409;
    await assert.rejects(found.stop(), conflict);
    await assert.rejects(found.extendTimeout(60_000), conflict);
    await assert.rejects(found.snapshot(), conflict);
    await assert.rejects(found.update({ timeout: 60_000 }), conflict);
    await assert.rejects(VercelSandbox.create({ ...scope, name: `sbx_${id}` }), (why) => why.response?.status === 400);
    return found;
  }

  test('by the bridge, used with OpenSandbox’s client and the SDK of Vercel’s', limit, async () => {
    const answer = await fetch(`${node}/v1/sandbox`, { method: 'POST', headers: { authorization: `Bearer ${key}` } });
    const { id } = await answer.json();
    assert.equal((await bridge(`${id}/file/workspace/first`, { method: 'PUT', body: 'first' })).status, 200);
    const other = await OpenSandbox.connect({ sandboxId: id, connectionConfig });
    const words = 'cat first; echo second > second';
    assert.deepEqual((await other.commands.run(words)).logs.stdout.map((each) => each.text), ['first']);
    assert.equal(await (await bridge(`${id}/file/workspace/second`)).text(), 'second\n');
    await use_by_vercel(id, 'sandbox');
    assert.equal(await (await bridge(`${id}/file/workspace/by-vercel/deep`)).text(), 'three');
    await other.kill();
    await other.close();
    await assert_gone(id);
    await assert.rejects(VercelSandbox.get({ ...scope, name: `sbx_${id}` }), (why) => why.response?.status === 404);
  });

  test('by OpenSandbox’s client, used by the bridge and the SDK of Vercel’s', limit, async () => {
    const made = await OpenSandbox.create({ connectionConfig, image: 'host', timeoutSeconds: 600, env: { GREETING: 'hello' } });
    const { id } = made;
    await made.files.writeFiles([{ path: '/workspace/first', data: 'first' }]);
    assert.equal(await exec(id, 'sh', '-c', 'cat /workspace/first; echo second > /workspace/second'), 'first');
    assert.equal(await exec(id, 'sh', '-c', 'echo $GREETING'), 'hello\n');
    assert.equal(await made.files.readFile('/workspace/second'), 'second\n');
    const found = await use_by_vercel(id, (await exec(id, 'id', '-un')).trim());
    assert.equal(await (await found.runCommand('sh', ['-c', 'echo $GREETING'])).stdout(), 'hello\n');
    assert.ok(Math.abs(found.expiresAt - Date.now() - 600_000) < 120_000);
    assert.equal(await made.files.readFile('/workspace/by-vercel/deep'), 'three');
    await made.pause();
    assert.equal((await VercelSandbox.get({ ...scope, name: `sbx_${id}` })).status, 'stopped');
    await found.delete();
    await assert.rejects(made.getInfo());
    await made.close();
    await assert_gone(id);
  });
});
