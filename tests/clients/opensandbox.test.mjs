// OpenSandbox's own client, unmodified, against a running Insula: INSULA_URL says where, INSULA_API_KEY with which key.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { ConnectionConfig, Sandbox, SandboxException, SandboxManager } from '@alibaba-group/opensandbox';

const key = process.env.INSULA_API_KEY;
const node = process.env.INSULA_URL;
assert.ok(node && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 120_000 };
const connection = (apiKey = key) => new ConnectionConfig({ domain: node, apiKey });
const pause = (ms) => new Promise((resume) => setTimeout(resume, ms));

describe('the OpenSandbox client', () => {
  let sandbox;
  const options = {
    image: 'host',
    timeoutSeconds: 600,
    env: { GREETING: 'hello from create' },
    metadata: { owner: 'tests' },
    resource: { cpu: '2', memory: '384Mi' },
  };

  const lines = (execution) => execution.logs.stdout.map((each) => each.text);
  async function until(what) {
    for (let i = 0; i < 600; ++i) {
      const found = await what();
      if (found) return found;
      await pause(50);
    }
    assert.fail('it does not come to that');
  }

  before(async () => {
    sandbox = await Sandbox.create({ connectionConfig: connection(), ...options });
  }, limit);
  after(async () => {
    await sandbox?.kill().catch(() => {});
    await sandbox?.close();
  }, limit);

  test('a wrong key is refused with its code', limit, async () => {
    await assert.rejects(Sandbox.create({ connectionConfig: connection('wrong'), ...options }), (why) => {
      assert.ok(why instanceof SandboxException);
      assert.equal(why.error.code, 'INVALID_API_KEY');
      assert.ok(why.requestId);
      return true;
    });
  });

  test('it says what it is', limit, async () => {
    assert.match(sandbox.id, /^[a-z2-7]{26}$/);
    const info = await sandbox.getInfo();
    assert.equal(info.status.state, 'Running');
    assert.equal(info.image.uri, 'host');
    assert.deepEqual(info.entrypoint, ['tail', '-f', '/dev/null']);
    assert.deepEqual(info.metadata, { owner: 'tests' });
    assert.ok(Math.abs(info.expiresAt - info.createdAt - 600_000) < 5_000);
    assert.equal(await sandbox.isHealthy(), true);
  });

  test('a command with handlers', limit, async () => {
    const heard = [];
    const execution = await sandbox.commands.run(
      'for i in 1 2 3; do echo "Count $i"; done; echo; echo oops >&2; printf "$GREETING"',
      undefined,
      {
        onInit: () => heard.push('init'),
        onStdout: (each) => heard.push(each.text),
        onStderr: (each) => heard.push(`err ${each.text}`),
        onExecutionComplete: () => heard.push('complete'),
        onError: () => heard.push('error'),
      },
    );
    assert.deepEqual(lines(execution), ['Count 1', 'Count 2', 'Count 3', '\n', 'hello from create']);
    assert.deepEqual(execution.logs.stderr.map((each) => each.text), ['oops']);
    assert.equal(execution.exitCode, 0);
    assert.equal(heard[0], 'init');
    assert.equal(heard.at(-1), 'complete');
    assert.equal(heard.filter((each) => each === 'init' || each === 'complete' || each === 'error').length, 2);
  });

  test('a command that fails', limit, async () => {
    const execution = await sandbox.commands.run('exit 7');
    assert.equal(execution.exitCode, 7);
    assert.equal(execution.error.name, 'CommandExecError');
    assert.equal(execution.complete, undefined);
    const late = await sandbox.commands.run('sleep 60', { timeoutSeconds: 1 });
    assert.equal(late.exitCode, null);
    assert.match(late.error.value, /timed out after 1000 ms/);
    const where = await sandbox.commands.run('pwd; echo $A', { workingDirectory: '/tmp', envs: { A: 'b' } });
    assert.deepEqual(lines(where), ['/tmp', 'b']);
    await assert.rejects(sandbox.commands.run('pwd', { workingDirectory: '/nowhere' }), SandboxException);
  });

  test('in the background: status, logs by cursor, interrupt', limit, async () => {
    const { id } = await sandbox.commands.run('echo one; echo two >&2; while :; do sleep 0.05; done', { background: true });
    const first = await until(async () => {
      const logs = await sandbox.commands.getBackgroundCommandLogs(id);
      return logs.content === 'one\ntwo\n' && logs;
    });
    assert.equal(first.cursor, 1);
    assert.equal((await sandbox.commands.getBackgroundCommandLogs(id, first.cursor)).content, '');
    const status = await sandbox.commands.getCommandStatus(id);
    assert.equal(status.running, true);
    await sandbox.commands.interrupt(id);
    const ended = await sandbox.commands.getCommandStatus(id);
    assert.equal(ended.running, false);
    assert.match(ended.error, /signal: /);
  });

  test('files are written and read', limit, async () => {
    const { files } = sandbox;
    const large = new Uint8Array(5_000_000).map((_, i) => i % 251);
    async function* pieces() {
      for (let at = 0; at < large.length; at += 70_000) yield large.subarray(at, at + 70_000);
    }
    await files.writeFiles([
      { path: '/workspace/notes/a.txt', data: 'one\ntwo\r\nthree\n', mode: 640 },
      { path: '/workspace/notes/\u00fc \u2713.txt', data: 'named' },
      { path: '/workspace/large', data: large },
      { path: '~/streamed', data: pieces() },
      { path: '/workspace/empty', data: '' },
    ]);
    assert.equal(await files.readFile('/workspace/notes/a.txt'), 'one\ntwo\r\nthree\n');
    assert.equal(await files.readFile('/workspace/notes/a.txt', { offset: 2, limit: 2 }), 'two\nthree');
    assert.equal(await files.readFile('/workspace/notes/a.txt', { range: 'bytes=4-6' }), 'two');
    assert.equal(await files.readFile('/workspace/notes/\u00fc \u2713.txt'), 'named');
    assert.equal(await files.readFile('/workspace/empty'), '');
    assert.ok(Buffer.from(await files.readBytes('/workspace/large')).equals(Buffer.from(large)));
    const streamed = [];
    for await (const piece of files.readBytesStream('$HOME/streamed')) streamed.push(piece);
    assert.ok(Buffer.concat(streamed).equals(Buffer.from(large)));
    const info = await files.getFileInfo(['/workspace/notes/a.txt', '/workspace/large']);
    assert.equal(info['/workspace/notes/a.txt'].mode, 640);
    assert.equal(info['/workspace/large'].mode, 755);
    assert.equal(info['/workspace/large'].size, large.length);
    assert.equal(info['/workspace/large'].owner, 'sandbox');
    assert.ok(Math.abs(info['/workspace/large'].modifiedAt - Date.now()) < 600_000);
    await assert.rejects(files.readFile('/workspace/none'), (why) => why.statusCode === 404);
    await assert.rejects(files.getFileInfo(['/workspace/none']), SandboxException);
    assert.equal((await fetch(`${node}/v1/sandbox/${sandbox.id}/file/workspace/notes/a.txt`, { headers: { authorization: `Bearer ${key}` } })).status, 200);
  });

  test('files are found, changed, moved and removed', limit, async () => {
    const { files } = sandbox;
    await files.createDirectories([{ path: '/workspace/tree/sub', mode: 750 }]);
    await files.writeFiles([
      { path: '/workspace/tree/a.js', data: 'let a = 1; a + a' },
      { path: '/workspace/tree/sub/b.ts', data: 'b' },
      { path: '/workspace/tree/c.txt', data: 'c' },
    ]);
    const names = (found) => found.map((each) => each.path.replace('/workspace/tree/', ''));
    assert.deepEqual(names(await files.search({ path: '/workspace/tree', pattern: '**/*.{js,ts}' })), ['a.js', 'sub/b.ts']);
    assert.deepEqual(names(await files.search({ path: '/workspace/tree' })), ['a.js', 'c.txt', 'sub/b.ts']);
    assert.deepEqual(names(await files.listDirectory({ path: '/workspace/tree', depth: 2 })), ['a.js', 'c.txt', 'sub', 'sub/b.ts']);
    const [replaced] = await files.replaceContentsDetailed([{ path: '/workspace/tree/a.js', oldContent: 'a', newContent: 'b' }]);
    assert.deepEqual(replaced, { path: '/workspace/tree/a.js', replacedCount: 3 });
    assert.equal(await files.readFile('/workspace/tree/a.js'), 'let b = 1; b + b');
    await files.replaceContents([{ path: '/workspace/tree/a.js', oldContent: 'none', newContent: 'x' }]);
    await files.moveFiles([{ src: '/workspace/tree/c.txt', dest: '/workspace/tree/new/d.txt' }]);
    await assert.rejects(files.moveFiles([{ src: '/workspace/tree/a.js', dest: '/workspace/tree/new/d.txt' }]), /already exists/);
    await files.setPermissions([{ path: '/workspace/tree/a.js', mode: 600 }]);
    assert.equal((await files.getFileInfo(['/workspace/tree/a.js']))['/workspace/tree/a.js'].mode, 600);
    await files.deleteFiles(['/workspace/tree/a.js', '/workspace/tree/never']);
    await assert.rejects(files.deleteFiles(['/workspace/tree/sub']), SandboxException);
    await files.deleteDirectories(['/workspace/tree']);
    await assert.rejects(files.listDirectory({ path: '/workspace/tree' }), (why) => why.error.code === 'FILE_NOT_FOUND');
  });

  test('a session keeps its directory and its variables', limit, async () => {
    const { commands } = sandbox;
    const session = await commands.createSession({ workingDirectory: '/workspace/of/a/session' });
    assert.deepEqual(lines(await commands.runInSession(session, 'pwd; export WHO=me; echo warning >&2')), ['/workspace/of/a/session', 'warning']);
    const ids = [];
    const second = await commands.runInSession(session, 'echo $WHO; mkdir -p below; cd below', {}, { onInit: (each) => ids.push(each.id) });
    assert.deepEqual(lines(second), ['me']);
    assert.equal(second.exitCode, 0);
    assert.deepEqual(ids, [session]);
    assert.deepEqual(lines(await commands.runInSession(session, 'pwd')), ['/workspace/of/a/session/below']);
    assert.deepEqual(lines(await commands.runInSession(session, 'pwd', { workingDirectory: '/tmp' })), ['/tmp']);
    assert.deepEqual(lines(await commands.runInSession(session, 'pwd')), ['/tmp']);
    assert.equal((await commands.runInSession(session, '(exit 7)')).exitCode, 7);
    const late = await commands.runInSession(session, 'sleep 60', { timeoutSeconds: 1 });
    assert.match(late.error.value, /timed out after 1000 ms/);
    assert.deepEqual(lines(await commands.runInSession(session, 'echo $WHO')), ['me']);
    await assert.rejects(commands.runInSession(session, 'pwd', { workingDirectory: '/nowhere' }), SandboxException);
    await commands.deleteSession(session);
    await assert.rejects(commands.deleteSession(session), (why) => why.error.code === 'CONTEXT_NOT_FOUND');
    await assert.rejects(commands.runInSession(session, 'pwd'), SandboxException);
  });

  test('what it uses is measured', limit, async () => {
    const metrics = await sandbox.getMetrics();
    assert.ok(metrics.cpuCount > 0);
    assert.ok(metrics.cpuUsedPercentage >= 0 && metrics.cpuUsedPercentage <= 100);
    assert.equal(metrics.memoryTotalMiB, 384);
    assert.ok(metrics.memoryTotalMiB > metrics.memoryUsedMiB);
    assert.ok(metrics.memoryUsedMiB > 0);
    assert.ok(Math.abs(metrics.timestamp - Date.now()) < 600_000);
  });

  test('what it may reach is read and changed', limit, async () => {
    const policy = await sandbox.getEgressPolicy();
    assert.equal(policy.defaultAction, 'allow');
    await sandbox.patchEgressRules([{ action: 'deny', target: 'forbidden.example' }]);
    assert.deepEqual((await sandbox.getEgressPolicy()).egress, [{ action: 'deny', target: 'forbidden.example' }]);
  });

  test('an endpoint leads to a web server in it', limit, async () => {
    await sandbox.commands.run('mkdir -p site && echo served > site/index.html && exec python3 -m http.server 8000 --directory site', {
      background: true,
    });
    const endpoint = await sandbox.getEndpoint(8000);
    assert.equal(endpoint.endpoint, `${new URL(node).host}/sandboxes/${sandbox.id}/proxy/8000`);
    const body = await until(async () => {
      const answer = await fetch(`http://${endpoint.endpoint}/index.html`, { headers: endpoint.headers });
      return answer.ok && (await answer.text());
    });
    assert.equal(body, 'served\n');
    assert.equal((await fetch(`http://${endpoint.endpoint}/`)).status, 401);
  });

  test('another client finds it, and renews it', limit, async () => {
    const other = await Sandbox.connect({ connectionConfig: connection(), sandboxId: sandbox.id });
    assert.deepEqual(lines(await other.commands.run('cat site/index.html')), ['served']);
    const before = (await other.getInfo()).expiresAt;
    await other.renew(3600);
    assert.ok((await other.getInfo()).expiresAt - before > 2_000_000);
    assert.deepEqual((await other.patchMetadata({ owner: null, stage: 'two' })).metadata, { stage: 'two' });
    await other.close();
  });

  test('the manager lists it', limit, async () => {
    const manager = SandboxManager.create({ connectionConfig: connection() });
    const found = await manager.listSandboxInfos({ metadata: { stage: 'two' }, states: ['Running'] });
    assert.deepEqual(found.items.map((each) => each.id), [sandbox.id]);
    assert.equal((await manager.listSandboxInfos({ metadata: { stage: 'three' } })).items.length, 0);
    await manager.close();
  });

  test('paused, it stands still until it is resumed', limit, async () => {
    const { id } = await sandbox.commands.run('while :; do echo $EPOCHREALTIME; sleep 0.01; done', { background: true });
    await until(async () => (await sandbox.commands.getBackgroundCommandLogs(id)).content);
    await sandbox.pause();
    const paused = Date.now() / 1000;
    const { status } = await sandbox.getInfo();
    assert.equal(status.state, 'Paused');
    assert.equal(status.reason, 'CONTAINER_PAUSED');
    const manager = SandboxManager.create({ connectionConfig: connection() });
    const listed = async (states) => (await manager.listSandboxInfos({ states })).items.map((each) => each.id);
    assert.deepEqual(await listed(['Paused']), [sandbox.id]);
    assert.ok(!(await listed(['Running'])).includes(sandbox.id));
    await assert.rejects(sandbox.pause(), (why) => why.error.code === 'DOCKER::SANDBOX_NOT_RUNNING');
    const waits = sandbox.commands.run('echo later');
    await pause(300);
    const resumed = Date.now() / 1000;
    const again = await sandbox.resume();
    assert.notEqual(again, sandbox);
    assert.equal(again.id, sandbox.id);
    assert.equal((await again.getInfo()).status.state, 'Running');
    assert.deepEqual(lines(await waits), ['later']);
    const beats = await until(async () => {
      const { content } = await again.commands.getBackgroundCommandLogs(id);
      const all = content.split('\n').slice(0, -1).map(Number);
      return all.at(-1) > resumed && all;
    });
    assert.ok(beats[0] < paused);
    assert.deepEqual(beats.filter((each) => each > paused && each < resumed), []);
    await assert.rejects(again.resume(), (why) => why.error.code === 'DOCKER::SANDBOX_NOT_PAUSED');
    await again.pause();
    await (await Sandbox.resume({ connectionConfig: connection(), sandboxId: sandbox.id })).close();
    await manager.pauseSandbox(sandbox.id);
    await manager.resumeSandbox(sandbox.id);
    await again.commands.interrupt(id);
    await manager.close();
    sandbox = again; // The two have one connection.
  });

  test('a snapshot has its whole disk, and others begin with it', limit, async () => {
    const manager = SandboxManager.create({ connectionConfig: connection() });
    await sandbox.commands.run('echo kept > /workspace/kept; mkdir -p ~/tools');
    const taken = await manager.createSnapshot(sandbox.id, { name: 'of-tests' });
    assert.equal(taken.sandboxId, sandbox.id);
    assert.equal(taken.name, 'of-tests');
    await until(async () => (await manager.getSnapshot(taken.id)).status.state === 'Ready');
    assert.ok(Date.now() - taken.createdAt < 60_000);
    const listed = await manager.listSnapshots({ sandboxId: sandbox.id, states: ['Ready'] });
    assert.deepEqual(listed.items.map((each) => each.id), [taken.id]);
    assert.equal(listed.pagination.totalItems, 1);
    await sandbox.commands.run('echo later > /workspace/kept');

    const restored = await Sandbox.create({ connectionConfig: connection(), snapshotId: taken.id });
    assert.deepEqual(lines(await restored.commands.run('cat /workspace/kept; cd ~/tools && echo there')), ['kept', 'there']);
    assert.equal((await restored.getInfo()).snapshotId, taken.id);
    await manager.deleteSnapshot(taken.id);
    await assert.rejects(manager.getSnapshot(taken.id), (why) => why.error.code === 'SNAPSHOT::NOT_FOUND');
    await assert.rejects(manager.deleteSnapshot(taken.id), (why) => why.error.code === 'SNAPSHOT::NOT_FOUND');
    await assert.rejects(
      Sandbox.create({ connectionConfig: connection(), snapshotId: taken.id }),
      (why) => why.error.code === 'SNAPSHOT::NOT_FOUND'
    );
    assert.deepEqual(lines(await restored.commands.run('cat /workspace/kept')), ['kept']);
    await restored.kill();
    await restored.close();
    await manager.close();
  });

  test('the bridge sees the same sandbox', limit, async () => {
    const answer = await fetch(`${node}/v1/sandbox/${sandbox.id}/exec`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${key}` },
      body: JSON.stringify({ argv: ['cat', '/workspace/site/index.html'] }),
    });
    assert.match(await answer.text(), new RegExp(Buffer.from('served\n').toString('base64')));
  });

  test('an image that is not there is refused with its name', limit, async () => {
    await assert.rejects(
      Sandbox.create({ connectionConfig: connection(), ...options, image: 'python:3.12' }),
      (why) => why.error.code === 'DOCKER::SANDBOX_IMAGE_PULL_FAILED' && /python:3\.12/.test(why.message)
    );
  });

  test('killed, it is gone', limit, async () => {
    assert.equal(await sandbox.isHealthy(), true);
    await sandbox.kill();
    assert.equal(await sandbox.isHealthy(), false);
    await assert.rejects(sandbox.getInfo(), (why) => why.error.code === 'DOCKER::SANDBOX_NOT_FOUND');
    await assert.rejects(sandbox.commands.run('true'), SandboxException);
  });
});
