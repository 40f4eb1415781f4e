// The SDK of the Vercel Sandbox service, unmodified, against a running Insula: INSULA_URL says where, INSULA_API_KEY with
// which key. Node.js is started with insula-vercel.mjs. Cases have the numbers of the features that they show.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { after, before, describe, test } from 'node:test';
import { createGzip, gzipSync } from 'node:zlib';

import { Sandbox } from '@vercel/sandbox';

const key = process.env.INSULA_API_KEY;
assert.ok(process.env.INSULA_URL && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 120_000 };
const scope = { token: key, teamId: 'team_test', projectId: 'prj_test' };
const refused = (status, code) => (why) => {
  assert.equal(why.response?.status, status, why.message);
  assert.equal(why.json?.error?.code, code, JSON.stringify(why.json));
  return true;
};

describe('the SDK', () => {
  let box;
  const options = {
    name: 'main-box', ports: [3000, 8080], timeout: 600_000, env: { GREETING: 'hello', SHARED: 'sandbox' },
    tags: { owner: 'tests', kind: 'a:b' }, resources: { vcpus: 2 },
  };
  const output = async (cmd, ...args) => (await box.runCommand(cmd, args)).stdout();
  const sh = (script) => box.runCommand('sh', ['-c', script]);

  before(async () => { box = await Sandbox.create({ ...scope, ...options }); }, limit);
  after(async () => { await box?.delete().catch(() => {}); }, limit);

  test('V001 a token with the team and the project in it', limit, async () => {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const token = `${part({ alg: 'none' })}.${part({ owner_id: 'team_test', project_id: 'prj_test', exp: 9_999_999_999 })}.x`;
    // The server looks at the key alone, which no such token is.
    process.env.VERCEL_OIDC_TOKEN = token;
    await assert.rejects(Sandbox.get({ name: 'main-box' }), refused(403, 'forbidden'));
    delete process.env.VERCEL_OIDC_TOKEN;
  });
  test('V002 an access token, the right one alone', limit, async () => {
    assert.equal((await Sandbox.get({ ...scope, name: 'main-box' })).name, 'main-box');
    await assert.rejects(Sandbox.get({ ...scope, token: 'wrong', name: 'main-box' }), refused(403, 'forbidden'));
  });
  test('V001 V002 tokens for one project', limit, async () => {
    const { INSULA_PROGRAM: program } = process.env;
    const made = (project) => Object.fromEntries(execFileSync(program, ['token', 'vercel', '--team', 'team_test', '--project', project],
      { env: { SANDBOX_API_KEY: key }, encoding: 'utf8' }).trim().split('\n').map((line) => line.split(/=(.*)/s)));
    const [mine, other] = [made('prj_test'), made('prj_other')];
    const shown = ({ VERCEL_TOKEN: token, VERCEL_TEAM_ID: teamId, VERCEL_PROJECT_ID: projectId }) => ({ token, teamId, projectId });
    const found = await Sandbox.get({ ...shown(mine), name: 'main-box' });
    assert.equal(await (await found.runCommand('echo', ['by token'])).stdout(), 'by token\n');
    assert.ok((await Sandbox.list(shown(mine))).sandboxes.some((each) => each.name === 'main-box'));
    const own = await Sandbox.create(shown(mine));
    // A token for another project finds nothing of this one, by no path.
    for (const projectId of ['prj_test', 'prj_other'])
      await assert.rejects(Sandbox.get({ ...shown(other), projectId, name: 'main-box' }), refused(404, 'not_found'));
    await assert.rejects(Sandbox.get({ ...shown(mine), teamId: 'team_other', name: 'main-box' }), refused(404, 'not_found'));
    await assert.rejects(Sandbox.list({ ...shown(other), projectId: 'prj_test' }), refused(404, 'not_found'));
    await assert.rejects(Sandbox.create({ ...shown(other), projectId: 'prj_test', name: 'not-made' }), refused(404, 'not_found'));
    await assert.rejects(Sandbox.get({ ...scope, name: 'not-made' }), refused(404, 'not_found'));
    const { sessionId } = own.currentSession();
    const status = async (path, { VERCEL_TOKEN: token }, options = {}) => (await fetch(`${process.env.INSULA_URL}${path}`, {
      ...options, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' } })).status;
    const session = `/v2/sandboxes/sessions/${sessionId}`;
    const post = (body) => ({ method: 'POST', body: JSON.stringify(body) });
    for (const [path, options] of [[session], [`${session}/cmd`, post({ command: 'true' })], [`${session}/fs/read`, post({ path: '/etc/hostname' })],
      [`${session}/stop`, post({})], [`/v2/sandboxes/sessions?project=prj_test&name=${own.name}`]]) {
      assert.equal(await status(path, other, options), 404, path);
    }
    assert.equal(await status(session, mine), 200);
    // It opens this API alone.
    assert.equal(await status('/v1/sandboxes', mine), 401);
    assert.equal(await status(session, { VERCEL_TOKEN: `${mine.VERCEL_TOKEN}A` }), 403);
    await own.delete();
    process.env.VERCEL_OIDC_TOKEN = mine.VERCEL_OIDC_TOKEN;
    assert.equal((await Sandbox.get({ name: 'main-box' })).name, 'main-box');
    delete process.env.VERCEL_OIDC_TOKEN;
  });
  test('V003 V010 V011 V037 V045 V046 V048 V189 V190 a runtime by its name, and what holds without a word', limit, async () => {
    const other = await Sandbox.create({ ...scope, runtime: 'node24' });
    assert.equal(other.runtime, 'node24');
    assert.deepEqual([other.vcpus, other.memory, other.timeout, other.persistent, other.region], [2, 4096, 300_000, true, 'iad1']);
    assert.ok(Math.abs(other.expiresAt - other.createdAt - 300_000) < 60_000);
    assert.match(await (await other.runCommand('node', ['--version'])).stdout(), /^v\d+\./);
    await other.delete();
    await assert.rejects(Sandbox.create({ ...scope, runtime: 'cobol9' }), refused(400, 'bad_request'));
  });

  test('V038 one of two that make the same sandbox does', limit, async () => {
    const name = 'twice-at-once';
    const made = await Promise.allSettled([1, 2, 3].map((n) => Sandbox.create({ ...scope, name, env: { N: String(n) } })));
    const [one, ...others] = made.filter((each) => each.status === 'fulfilled').map((each) => each.value);
    assert.equal(others.length, 0);
    for (const each of made.filter((each) => each.status === 'rejected')) assert.ok(refused(400, 'bad_request')(each.reason));
    assert.match(await (await one.runCommand('sh', ['-c', 'echo $N'])).stdout(), /^[123]\n$/);
    await one.delete();
  });
  test('V004 to V015 V024 V025 what it says of itself', limit, async () => {
    assert.equal(box.name, 'main-box');
    assert.equal(box.persistent, true);
    assert.equal(box.status, 'running');
    assert.equal(box.timeout, 600_000);
    assert.deepEqual(box.tags, { owner: 'tests', kind: 'a:b' });
    assert.equal(box.vcpus, 2);
    assert.equal(box.memory, 4096);
    assert.equal(box.runtime, undefined);
    assert.equal(box.region, 'iad1');
    assert.ok(Math.abs(box.createdAt - Date.now()) < 120_000);
    assert.ok(box.updatedAt >= box.createdAt);
    assert.ok(box.expiresAt > new Date());
    assert.ok(box.statusUpdatedAt >= box.createdAt);
    assert.equal(box.cwd, '/vercel/sandbox');
    assert.equal(box.networkPolicy, 'allow-all');
    assert.deepEqual(box.routes.map((each) => each.port), [3000, 8080]);
    assert.deepEqual([box.image, box.sourceSnapshotId, box.networkId], [undefined, undefined, undefined]);
    assert.deepEqual(box.failoverRegions, []);
    assert.ok(box.interactivePort > 0);
    assert.deepEqual([box.currentSnapshotId, box.snapshotExpiration, box.keepLastSnapshots], [undefined, undefined, undefined]);
  });

  test('V026 to V033 V035 lists, by pages', limit, async () => {
    const made = [];
    for (const name of ['list-a', 'list-b', 'list-c'])
      made.push(await Sandbox.create({ ...scope, projectId: 'prj_lists', name, tags: { which: name }, timeout: 60_000 }));
    const lists = { ...scope, projectId: 'prj_lists' };
    const names = async (query) => (await Sandbox.list({ ...lists, ...query })).sandboxes.map((each) => each.name);
    assert.deepEqual(await names({}), ['list-c', 'list-b', 'list-a']);
    assert.deepEqual(await names({ sortOrder: 'asc' }), ['list-a', 'list-b', 'list-c']);
    assert.deepEqual(await names({ sortBy: 'name', namePrefix: 'list-b' }), ['list-b']);
    assert.deepEqual(await names({ sortBy: 'name', sortOrder: 'desc' }), ['list-c', 'list-b', 'list-a']);
    assert.deepEqual(await names({ tags: { which: 'list-a' } }), ['list-a']);
    assert.deepEqual(await names({ tags: { which: 'list' } }), []);
    assert.deepEqual(await names({ sortBy: 'statusUpdatedAt' }), ['list-c', 'list-b', 'list-a']);
    await made[0].stop();
    assert.deepEqual(await names({ sortBy: 'statusUpdatedAt' }), ['list-a', 'list-c', 'list-b']);
    assert.deepEqual(await names({ sortBy: 'statusUpdatedAt', sortOrder: 'asc' }), ['list-b', 'list-c', 'list-a']);
    const byName = await Sandbox.list({ ...lists, sortBy: 'name', sortOrder: 'asc', limit: 1 });
    assert.deepEqual(await names({ sortBy: 'name', sortOrder: 'asc', cursor: byName.pagination.next }), ['list-b', 'list-c']);
    // A cursor is one of its list.
    await assert.rejects(Sandbox.list({ ...lists, cursor: byName.pagination.next }), refused(400, 'bad_request'));
    await assert.rejects(Sandbox.list({ ...lists, cursor: 'none' }), refused(400, 'bad_request'));
    assert.deepEqual((await Sandbox.list({ ...lists, projectId: 'prj_nothing' })).sandboxes, []);
    await assert.rejects(Sandbox.list({ ...lists, namePrefix: 'list' }), refused(400, 'bad_request'));
    const first = await Sandbox.list({ ...lists, limit: 2 });
    assert.equal(first.pagination.count, 2);
    await made[2].delete(); // A cursor holds while what it has passed goes.
    assert.deepEqual(await names({ limit: 2, cursor: first.pagination.next }), ['list-a']);
    const seen = [];
    for await (const each of await Sandbox.list({ ...lists, limit: 1 })) seen.push(each.name);
    assert.deepEqual(seen, ['list-b', 'list-a']);
    assert.deepEqual((await (await Sandbox.list({ ...lists, limit: 1 })).toArray()).map((each) => each.name), seen);
    const pages = [];
    for await (const page of (await Sandbox.list({ ...lists, limit: 1 })).pages()) pages.push(page.sandboxes.length);
    assert.deepEqual(pages, [1, 1]);
    const [plain] = (await Sandbox.list({ ...lists, limit: 1 })).sandboxes;
    assert.deepEqual([typeof plain.createdAt, typeof plain.updatedAt, plain.status, plain.timeout], ['number', 'number', 'running', 60_000]);
    await Promise.all(made.slice(0, 2).map((each) => each.delete()));
    assert.deepEqual(await names({}), []);
  });

  test('V036 V038 names are unique in a project, and are made if there are none', limit, async () => {
    await assert.rejects(Sandbox.create({ ...scope, name: 'main-box' }), (why) => {
      refused(400, 'bad_request')(why);
      assert.match(why.message, /already exists/);
      return true;
    });
    const there = await Sandbox.create({ ...scope, projectId: 'prj_other', name: 'main-box', timeout: 60_000 });
    await there.delete();
    const named = await Sandbox.create({ ...scope, timeout: 60_000 });
    assert.match(named.name, /^[a-z0-9-]{10,}$/);
    await named.delete();
    for (const name of ['sessions', 'snapshots', 'drives', 'a b', 'a.b', 'ä', 'x'.repeat(129)])
      await assert.rejects(Sandbox.create({ ...scope, name }), refused(400, 'bad_request'));
    const every = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz-0123456789'.padEnd(128, 'x');
    const longest = await Sandbox.create({ ...scope, name: every, timeout: 60_000 });
    assert.equal((await Sandbox.get({ ...scope, name: every })).name, every);
    await longest.delete();
  });
  test('V045 V047 V048 V051 V053 V054 what is out of range is refused', limit, async () => {
    const wrong = [
      { resources: { vcpus: 3 } }, { ports: [80] }, { ports: [3000, 3000] }, { ports: Array.from({ length: 16 }, (_, i) => 3000 + i) },
      { tags: Object.fromEntries(Array.from({ length: 6 }, (_, i) => [`t${i}`, 'x'])) }, { tags: { a: 'x'.repeat(257) } },
      { snapshotExpiration: 5 }, { keepLastSnapshots: { count: 11 } },
    ];
    for (const each of wrong) await assert.rejects(Sandbox.create({ ...scope, ...each }), refused(400, 'bad_request'), JSON.stringify(each));
    for (const timeout of [999, 90_000_000])
      await assert.rejects(Sandbox.create({ ...scope, timeout }), refused(400, 'sandbox_timeout_invalid'));
  });
  test('V050 V076 variables, the later over the earlier', limit, async () => {
    assert.equal(await output('printenv', 'GREETING'), 'hello\n');
    const over = await box.runCommand({ cmd: 'sh', args: ['-c', 'echo $GREETING $SHARED $USER $HOME'], env: { SHARED: 'command' } });
    assert.equal(await over.stdout(), 'hello command vercel-sandbox /home/vercel-sandbox\n');
  });
  test('V057 a scope that ends stops its sandbox', limit, async () => {
    const one = await Sandbox.create({ ...scope, timeout: 60_000 });
    await one[Symbol.asyncDispose](); // What `await using` calls at the end of its block.
    const ended = await Sandbox.get({ ...scope, name: one.name });
    assert.equal(ended.status, 'stopped');
    await ended.delete();
  });

  test('V058 V062 V063 V064 V066 get, and get or create', limit, async () => {
    await assert.rejects(Sandbox.get({ ...scope, name: 'nobody' }), refused(404, 'not_found'));
    let created = 0;
    const onCreate = async (made) => {
      ++created;
      await made.writeFiles([{ path: 'first', content: 'made once' }]);
    };
    const params = { ...scope, name: 'lazy', timeout: 60_000, env: { FROM: 'create' }, tags: { a: 'b' }, onCreate };
    const one = await Sandbox.getOrCreate(params);
    assert.equal(await (await one.runCommand('sh', ['-c', 'echo $FROM; cat first'])).stdout(), 'create\nmade once');
    assert.deepEqual(one.tags, { a: 'b' });
    const two = await Sandbox.getOrCreate(params);
    assert.equal(created, 1);
    assert.equal(one.currentSession().sessionId, two.currentSession().sessionId);
    await two.delete();
    const three = await Sandbox.getOrCreate({ ...scope, timeout: 60_000, onCreate: () => { ++created; } });
    assert.equal(created, 2);
    await three.delete();
  });
  test('V034 V056 V061 V070 V089 V108 what is aborted, early and late', limit, async () => {
    const gone = AbortSignal.abort();
    const late = async (call) => {
      const abort = new AbortController();
      const asked = call(abort.signal);
      setImmediate(() => { abort.abort(); });
      return asked.then(() => 'done', (why) => why.name);
    };
    const command = await box.runCommand('true');
    for (const call of [
      (signal) => Sandbox.list({ ...scope, signal }),
      (signal) => Sandbox.get({ ...scope, name: 'main-box', signal }),
      (signal) => box.getCommand(command.cmdId, { signal }),
      (signal) => box.update({ tags: { never: 'seen' } }, { signal }),
      (signal) => box.writeFiles([{ path: 'never', content: 'seen' }], { signal }),
    ]) {
      await assert.rejects(call(gone));
    }
    assert.deepEqual((await Sandbox.get({ ...scope, name: 'main-box' })).tags, { owner: 'tests', kind: 'a:b' });
    assert.equal((await sh('test -e never')).exitCode, 1);
    // A create whose client has gone is whole, or was none: its name can be used.
    const params = { ...scope, name: 'left-alone', timeout: 60_000 };
    assert.match(await late((signal) => Sandbox.create({ ...params, signal })), /AbortError|done/);
    const one = await Sandbox.getOrCreate(params);
    assert.equal(await (await one.runCommand('pwd')).stdout(), '/vercel/sandbox\n');
    assert.ok(one.expiresAt <= new Date(Date.now() + 60_000));
    await one.delete();
  });
  test('V059 V062 V066 one that has stopped has its next session', limit, async () => {
    let resumes = 0;
    const params = { ...scope, name: 'again', timeout: 60_000, resume: true, onResume: () => { ++resumes; } };
    const one = await Sandbox.getOrCreate(params);
    await one.stop();
    const two = await Sandbox.getOrCreate(params);
    assert.notEqual(two.currentSession().sessionId, one.currentSession().sessionId);
    assert.equal(two.status, 'running');
    assert.equal(resumes, 1);
    await two.delete();
  });

  test('V071 V073 V074 V079 V154 V155 a command that is waited for', limit, async () => {
    const seen = { out: '', err: '' };
    const into = (which) => new Writable({ write(chunk, _, done) { seen[which] += chunk; done(); } });
    const done = await box.runCommand({ cmd: 'sh', args: ['-c', 'echo out; echo err >&2; exit 7'], stdout: into('out'), stderr: into('err') });
    assert.equal(done.exitCode, 7);
    assert.equal(await done.stdout(), 'out\n');
    assert.equal(await done.stderr(), 'err\n');
    assert.deepEqual(seen, { out: 'out\n', err: 'err\n' });
    assert.match(done.cmdId, /^cmd_/);
    assert.ok(done.durationMs >= 0);
    // Arguments are no shell's.
    assert.equal(await output('printf', '%s|', 'a b', '$HOME', '"', "'", '\\', 'ü€😀', ''), 'a b|$HOME|"|\'|\\|ü€😀||');
    // What is no text is replaced, and no character is divided.
    const long = await (await sh('printf "\\377"; for i in $(seq 20000); do printf "€😀"; done')).stdout();
    assert.equal(long, `\ufffd${'€😀'.repeat(20000)}`);
    await assert.rejects(box.runCommand('no-such-program'), refused(400, 'executable_not_found'));
    await assert.rejects(box.runCommand({ cmd: 'true', cwd: '/no/such/place' }), refused(400, 'bad_request'));
  });
  test('V072 aborted, the command goes on', limit, async () => {
    const abort = new AbortController();
    await sh('mkfifo begun aborted gone-on');
    const run = box.runCommand('sh', ['-c', 'echo > begun; read x < aborted; echo on > gone-on'], { signal: abort.signal });
    const settled = run.then(() => 'done', () => 'aborted');
    await sh('read x < begun');
    abort.abort();
    assert.equal(await settled, 'aborted');
    assert.equal(await output('sh', '-c', 'echo > aborted; cat gone-on'), 'on\n');
  });
  test('V075 V192 directories', limit, async () => {
    assert.equal(await output('pwd'), '/vercel/sandbox\n');
    await sh('mkdir -p sub/dir');
    const there = await box.runCommand({ cmd: 'pwd', cwd: 'sub/dir' });
    assert.equal(await there.stdout(), '/vercel/sandbox/sub/dir\n');
    assert.equal(there.cwd, '/vercel/sandbox/sub/dir');
    assert.equal((await box.runCommand({ cmd: 'pwd', cwd: '/tmp' })).cwd, '/tmp');
  });
  test('V077 V191 root keeps the environment and has its own home', limit, async () => {
    const done = await box.runCommand({ cmd: 'sh', args: ['-c', 'id -u; echo $HOME $GREETING; pwd'], sudo: true });
    assert.equal(await done.stdout(), '0\n/root hello\n/vercel/sandbox\n');
    assert.equal(await output('sudo', 'id', '-un'), 'root\n');
    assert.equal(await output('sudo', '-u', 'vercel-sandbox', 'id', '-un'), 'vercel-sandbox\n');
    assert.equal(await output('id', '-un'), 'vercel-sandbox\n');
  });
  test('V069 V078 V143 to V147 V149 V150 V151 V152 a command on its own', limit, async () => {
    const command = await box.runCommand({ cmd: 'sh', args: ['-c', 'echo one; echo two >&2; sleep 0.5; echo three; exit 4'], detached: true });
    assert.equal(command.exitCode, null);
    assert.equal(command.cwd, '/vercel/sandbox');
    assert.ok(Math.abs(command.startedAt - Date.now()) < 60_000);
    const lines = [];
    for await (const each of command.logs()) lines.push([each.stream, each.data]);
    assert.deepEqual(lines.map((each) => each[1]).join('').split('\n').sort(), ['', 'one', 'three', 'two']);
    assert.equal((await command.wait()).exitCode, 4);
    const found = await box.getCommand(command.cmdId);
    assert.equal(found.exitCode, 4);
    // From the beginning, each time and to each reader.
    assert.deepEqual(await Promise.all([found.stdout(), found.stderr(), found.output('both')]).then(([out, err, all]) => [out, err, all.length]),
      ['one\nthree\n', 'two\n', 14]);
    await assert.rejects(box.getCommand('cmd_00000000000000000000000000000000'), refused(404, 'not_found'));
    await assert.rejects(box.getCommand('nothing'), refused(404, 'not_found'));
  });
  test('V069 V143 to V147 V149 to V152 commands of a session that is over', limit, async () => {
    const one = await Sandbox.create({ ...scope, timeout: 60_000 });
    const ended = await one.runCommand('sh', ['-c', 'echo one; echo two >&2; exit 4']);
    const cut = await one.runCommand({ cmd: 'sh', args: ['-c', 'echo begun; exec sleep 987'], detached: true });
    for await (const each of cut.logs()) if (each.data.includes('begun')) break;
    await one.stop();
    const commands = await Promise.all([ended, cut].map((each) => one.getCommand(each.cmdId)));
    assert.deepEqual(commands.map((each) => [each.cmdId, each.cwd, each.startedAt]),
      [[ended.cmdId, '/vercel/sandbox', ended.startedAt], [cut.cmdId, '/vercel/sandbox', cut.startedAt]]);
    assert.equal(commands[0].exitCode, 4);
    assert.ok([143, null].includes(commands[1].exitCode), 'by the signal, or with its session');
    assert.equal((await commands[0].wait()).exitCode, 4);
    assert.deepEqual([await commands[0].stdout(), await commands[0].stderr(), await commands[1].output('both')], ['one\n', 'two\n', 'begun\n']);
    const session = `${process.env.INSULA_URL}/v2/sandboxes/sessions/${one.currentSession().sessionId}/cmd`;
    const answer = await fetch(session, { headers: { authorization: `Bearer ${key}` } });
    assert.deepEqual((await answer.json()).commands.map((each) => [each.id, each.exitCode]), [[cut.cmdId, commands[1].exitCode], [ended.cmdId, 4]]);
    await one.delete();
    assert.equal((await fetch(session, { headers: { authorization: `Bearer ${key}` } })).status, 404);
  });
  test('V080 a command past its time has 137', limit, async () => {
    const done = await box.runCommand({ cmd: 'sh', args: ['-c', 'trap "" TERM; sleep 60'], timeoutMs: 300 });
    assert.equal(done.exitCode, 137);
  });
  test('V153 V156 killed by a signal, with its group', limit, async () => {
    const command = await box.runCommand({ cmd: 'sh', args: ['-c', 'sleep 987 & wait'], detached: true });
    await command.kill();
    assert.equal((await command.wait()).exitCode, 143);
    assert.notEqual((await sh('pgrep -f "^sleep 987"')).exitCode, 0);
    await command.kill('SIGKILL'); // It has ended: nothing happens.
    const trapped = await box.runCommand({ cmd: 'sh', args: ['-c', 'trap "exit 9" INT; echo ready; while :; do sleep 0.05; done'], detached: true });
    for await (const each of trapped.logs()) if (each.data.includes('ready')) break;
    await trapped.kill('SIGINT');
    assert.equal((await trapped.wait()).exitCode, 9);
  });
  test('V148 a command whose sandbox stops', limit, async () => {
    const one = await Sandbox.create({ ...scope, timeout: 60_000 });
    await one.runCommand('mkfifo', ['on']);
    const run = one.runCommand('sh', ['-c', 'trap "" TERM; echo > on; sleep 60']);
    const settled = run.then((done) => done.exitCode, (why) => why);
    await one.runCommand('cat', ['on']);
    await one.stop();
    const outcome = await settled;
    assert.ok(outcome instanceof Error || outcome > 128, String(outcome));
    await one.delete();
  });

  test('V081 to V089 files', limit, async () => {
    await box.mkDir('made');
    await assert.rejects(box.mkDir('made'), refused(400, 'file_error'));
    await assert.rejects(box.mkDir('no/parent/here'), refused(400, 'file_error'));
    const deep = `made/${'long-name-'.repeat(12)}/ü€/file`;
    await box.writeFiles([
      { path: 'text.txt', content: 'as text' }, { path: '/tmp/below/tool', content: Buffer.from('#!/bin/sh\necho ran\n'), mode: 0o755 },
      { path: 'empty', content: Buffer.alloc(0) }, { path: deep, content: new Uint8Array([0, 1, 2, 255]) },
    ]);
    await box.writeFiles([]);
    assert.equal((await box.readFileToBuffer({ path: 'text.txt' })).toString(), 'as text');
    assert.deepEqual([...(await box.readFileToBuffer({ path: deep }))], [0, 1, 2, 255]);
    assert.equal((await box.readFileToBuffer({ path: 'empty' })).length, 0);
    assert.equal(await box.readFileToBuffer({ path: 'nothing' }), null);
    assert.equal(await box.readFile({ path: 'nothing' }), null);
    assert.equal((await box.readFileToBuffer({ path: 'below/tool', cwd: '/tmp' })).length, 19);
    assert.equal(await output('/tmp/below/tool'), 'ran\n');
    assert.equal(await output('stat', '-c', '%a %U', '/tmp/below/tool', 'text.txt', '/tmp/below'), '755 vercel-sandbox\n644 vercel-sandbox\n755 vercel-sandbox\n');
    await box.writeFiles([{ path: 'text.txt', content: 'new' }]);
    assert.equal(await output('cat', 'text.txt'), 'new');
    await assert.rejects(box.writeFiles([{ path: 'made', content: 'x' }]), refused(400, 'file_error'));
    await assert.rejects(box.readFileToBuffer({ path: 'made' }), refused(400, 'file_error'));
    const chunks = [];
    for await (const chunk of await box.readFile({ path: '/proc/version' })) chunks.push(chunk);
    assert.match(Buffer.concat(chunks).toString(), /^Linux/);
    const directory = await mkdtemp(join(tmpdir(), 'insula-vercel-'));
    await box.downloadFile({ path: 'text.txt' }, { path: join(directory, 'sub/got'), }, { mkdirRecursive: true });
    assert.equal(await readFile(join(directory, 'sub/got'), 'utf8'), 'new');
    assert.equal(await box.downloadFile({ path: 'below/tool', cwd: '/tmp' }, { path: 'tool', cwd: directory }), join(directory, 'tool'));
    assert.equal(await readFile(join(directory, 'tool'), 'utf8'), '#!/bin/sh\necho ran\n');
    assert.equal(await box.downloadFile({ path: 'nothing' }, { path: 'nothing', cwd: directory }), null);
    await rm(directory, { recursive: true });
  });
  test('V086 V087 archives that are large, cut, wrong or a bomb', limit, async () => {
    const large = randomBytes(48 << 20);
    await box.writeFiles([{ path: 'large', content: large }, { path: 'behind', content: 'it' }]);
    assert.equal((await output('sha256sum', 'large')).split(' ')[0], createHash('sha256').update(large).digest('hex'));
    assert.equal(await output('cat', 'behind'), 'it');
    await sh('rm large');
    const write = async (body, type = 'application/gzip') => {
      const got = await fetch(`${process.env.INSULA_URL}/api/v2/sandboxes/sessions/${box.currentSession().sessionId}/fs/write`, {
        method: 'POST', body, headers: { authorization: `Bearer ${key}`, 'content-type': type, 'x-cwd': '/vercel/sandbox' } });
      return [got.status, (await got.json()).error?.code];
    };
    const member = (name, type, size, link = '') => {
      const head = Buffer.alloc(512);
      for (const [at, text] of [[0, name], [100, '0000644\0'], [108, '0000000\0'], [116, '0000000\0'], [124, `${size.toString(8).padStart(11, '0')}\0`],
        [136, '00000000000\0'], [148, '        '], [156, type], [157, link], [257, 'ustar\0' + '00']])
        head.write(text, at, 'latin1');
      head.write(`${head.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
      return head;
    };
    const archive = (...parts) => gzipSync(Buffer.concat([...parts, Buffer.alloc(1024)]));
    const block = (text) => Buffer.concat([Buffer.from(text), Buffer.alloc(512 - text.length)]);
    assert.deepEqual(await write(archive(member('plain', '0', 2), block('ok'))), [200, undefined]);
    assert.equal(await output('cat', 'plain'), 'ok');
    assert.deepEqual(await write('no gzip'), [400, 'bad_request']);
    assert.deepEqual(await write(Buffer.concat([Buffer.from([0x1f, 0x8b]), randomBytes(1 << 20)])), [400, 'file_error']);
    assert.deepEqual(await write(archive(member('plain', '0', 2), block('ok')), 'application/json'), [415, 'invalid_content_type']);
    const whole = archive(member('cut', '0', 100_000), randomBytes(100_352));
    assert.deepEqual(await write(whole.subarray(0, 50_000)), [400, 'file_error']);
    // Nothing climbs out of the directory, by a name or by a link.
    assert.deepEqual(await write(archive(member('../climbed', '0', 2), block('no'))), [400, 'file_error']);
    await write(archive(member('out', '2', 0, '/tmp'), member('out/through', '0', 2), block('no')));
    assert.equal((await sh('ls /vercel/climbed /tmp/through 2>/dev/null')).exitCode !== 0, true);
    // Zeros that compress to very little are the sandbox's own, and end at its disk.
    const bomb = createGzip();
    const zeros = Readable.from((function* () {
      yield member('zeros', '0', 1000 << 20);
      for (let i = 0; i < 1000; ++i) yield Buffer.alloc(1 << 20);
      yield Buffer.alloc(1024);
    })());
    const small = Buffer.concat(await zeros.pipe(bomb).toArray());
    assert.ok(small.length < 1 << 20);
    assert.deepEqual(await write(small), [200, undefined]);
    assert.equal(await output('stat', '-c', '%s', 'zeros'), `${1000 << 20}\n`);
    await sh('rm zeros');
  });
  test('V090 V102 domains of ports', limit, async () => {
    assert.match(box.domain(3000), /^https:\/\/sb-[a-z2-7]{26}-3000-[a-z2-7]{16}\.vercel\.run$/);
    assert.throws(() => box.domain(4000));
    const before = box.domain(8080);
    await box.update({ ports: [8080, 5173] });
    assert.equal(box.domain(8080), before);
    assert.match(box.domain(5173), /-5173-/);
  });
  test('V090 a server in the sandbox, at its domain', limit, async () => {
    const server = `
      const { createHash } = require('node:crypto');
      require('node:http').createServer((asked, answer) => {
        if (asked.url === '/events') {
          answer.writeHead(200, { 'content-type': 'text/event-stream' });
          answer.write('data: 1\\n\\n');
          return asked.on('close', () => console.log('left'));
        }
        let body = '';
        asked.on('data', (some) => { body += some; }).on('end', () => {
          answer.writeHead(asked.url === '/missing' ? 404 : 200, { 'x-own': 'kept', 'set-cookie': 'a=b; Path=/' });
          answer.end(JSON.stringify({ method: asked.method, url: asked.url, host: asked.headers.host,
            forwarded: asked.headers['x-forwarded-host'], authorization: asked.headers.authorization, cookie: asked.headers.cookie, body }));
        });
      }).on('upgrade', (asked, socket) => {
        const accept = createHash('sha1').update(asked.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
        socket.write('HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: ' + accept + '\\r\\n\\r\\n');
        socket.write(Buffer.from([0x81, 2, 0x68, 0x69]));
      }).listen(8080, () => console.log('listening'));`;
    await assert.rejects(fetch(box.domain(8080)).then(async (got) => {
      assert.equal(got.status, 502);
      throw await got.json();
    }), (why) => why.error.code === 'SANDBOX_NOT_LISTENING');
    const running = await box.runCommand({ cmd: 'node', args: ['-e', server], detached: true });
    for await (const each of running.logs()) if (each.data.includes('listening')) break;
    const at = box.domain(8080);
    const got = await fetch(`${at}/api/v2/sandboxes?a=1`, { method: 'POST', body: 'text', headers: { authorization: 'Bearer its-own', cookie: 'c=d' } });
    assert.equal(got.status, 200);
    assert.equal(got.headers.get('x-own'), 'kept');
    assert.equal(got.headers.get('set-cookie'), 'a=b; Path=/');
    assert.deepEqual(await got.json(), { method: 'POST', url: '/api/v2/sandboxes?a=1', host: new URL(at).host,
      forwarded: new URL(at).host, authorization: 'Bearer its-own', cookie: 'c=d', body: 'text' });
    assert.equal((await fetch(`${at}/missing`)).status, 404);
    // As they come, and until their client leaves.
    const events = await fetch(`${at}/events`);
    const reader = events.body.getReader();
    assert.equal(new TextDecoder().decode((await reader.read()).value), 'data: 1\n\n');
    await reader.cancel();
    for await (const each of running.logs()) if (each.data.includes('left')) break;
    // The route says where this server has the same, with no key.
    const { url } = box.routes.find((each) => each.port === 8080);
    assert.ok(url.includes(new URL(at).host.split('.')[0]), url);
    const asked = { host: new URL(process.env.INSULA_URL).hostname, port: new URL(url).port, headers: { host: new URL(url).host } };
    const direct = await new Promise((told, failed) => get({ ...asked, path: '/direct' }, told).on('error', failed));
    assert.equal(direct.statusCode, 200);
    direct.resume();
    const upgraded = { ...asked.headers, connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==', 'sec-websocket-version': '13' };
    await new Promise((done, failed) => get({ ...asked, headers: upgraded, path: '/socket' })
      .on('error', failed)
      .on('upgrade', (answer, socket, first) => {
        const told = (some) => { if (some.includes('hi')) { socket.destroy(); done(); } };
        first.length ? told(first) : socket.on('data', told);
      }));
    // A policy is about what leaves a sandbox.
    await box.update({ networkPolicy: 'deny-all' });
    assert.equal((await fetch(at)).status, 200);
    await box.update({ networkPolicy: 'allow-all' });
    await running.kill('SIGKILL');
  });
  test('V090 V102 a domain leads to open ports of sandboxes that run, and nowhere else', limit, async () => {
    const one = await Sandbox.create({ ...scope, ports: [3000] });
    const code = async (url) => {
      const got = await fetch(url);
      return [got.status, (await got.json()).error.code];
    };
    const at = one.domain(3000);
    assert.deepEqual(await code(at), [502, 'SANDBOX_NOT_LISTENING']);
    for (const other of [at.replace('-3000-', '-3001-'), at.replace(/.\.vercel/, (two) => (two[0] === 'a' ? 'b.vercel' : 'a.vercel')), 'https://www.vercel.run'])
      assert.deepEqual(await code(other), [404, 'SANDBOX_NOT_FOUND']);
    await one.update({ ports: [4000] });
    assert.deepEqual(await code(at), [404, 'SANDBOX_NOT_FOUND']);
    assert.deepEqual(await code(one.domain(4000)), [502, 'SANDBOX_NOT_LISTENING']);
    await one.update({ ports: [3000] });
    await one.stop();
    assert.deepEqual(await code(at), [410, 'SANDBOX_STOPPED']);
    await one.delete();
    assert.deepEqual(await code(at), [404, 'SANDBOX_NOT_FOUND']);
  });
  test('V093 users and groups', limit, async () => {
    assert.equal((await box.getDefaultUser()).username, 'vercel-sandbox');
    const alice = await box.createUser('alice');
    await box.createGroup('crew');
    await box.addUserToGroup('alice', 'crew');
    assert.equal(await (await alice.runCommand('id', ['-Gn'])).stdout(), 'alice crew\n');
    await alice.writeFiles([{ path: 'hers', content: 'of alice' }]);
    assert.equal((await alice.readFileToBuffer({ path: 'hers' })).toString(), 'of alice');
    assert.equal(await output('sudo', 'stat', '-c', '%U', '/home/alice/hers'), 'alice\n');
    await box.removeUserFromGroup('alice', 'crew');
    const again = box.asUser('alice');
    assert.equal(await (await again.runCommand({ cmd: 'sh', args: ['-c', 'id -Gn; pwd'], cwd: '/tmp' })).stdout(), 'alice\n/tmp\n');
    assert.equal(await (await box.asUser('root').runCommand('id', ['-u'])).stdout(), '0\n');
    await assert.rejects(box.createUser('alice'));
  });

  test('V094 V096 V097 V098 V018 to V023 V119 V120 stopped, with what it has used', limit, async () => {
    const one = await Sandbox.create({ ...scope, timeout: 60_000, persistent: false });
    await one.runCommand('sh', ['-c', 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done']);
    const [first, second] = await Promise.all([one.stop(), one.stop()]);
    assert.equal(first.status, 'stopped');
    assert.equal(first.stoppedAt, second.stoppedAt);
    assert.ok(first.activeCpuUsageMs > 0);
    assert.equal((await one.stop()).stoppedAt, first.stoppedAt);
    assert.equal(one.status, 'stopped');
    assert.ok(one.activeCpuUsageMs > 0);
    assert.equal(typeof one.networkTransfer.ingress, 'number');
    assert.equal(one.currentSession().activeCpuUsageMs, one.activeCpuUsageMs);
    assert.deepEqual(one.currentSession().networkTransfer, one.networkTransfer);
    const now = await Sandbox.get({ ...scope, name: one.name });
    assert.ok(now.totalDurationMs > 0 && now.totalActiveCpuDurationMs > 0);
    assert.equal(typeof now.totalIngressBytes, 'number');
    assert.equal(typeof now.totalEgressBytes, 'number');
    await assert.rejects(one.runCommand('true'), refused(410, 'snapshot_not_found'));
    await one.delete();
  });
  test('V014 V016 V017 V099 V100 V103 V104 V105 V106 updates, all or nothing', limit, async () => {
    const before = box.expiresAt;
    const { updatedAt } = box;
    await box.update({ tags: { new: 'tag' }, timeout: 700_000, persistent: false, snapshotExpiration: 0, keepLastSnapshots: { count: 3 }, resources: { vcpus: 4 } });
    assert.deepEqual(box.tags, { new: 'tag' });
    assert.equal(box.timeout, 700_000);
    assert.equal(box.persistent, false);
    assert.equal(box.vcpus, 4);
    assert.equal(box.snapshotExpiration, 0);
    assert.ok(box.updatedAt > updatedAt);
    assert.deepEqual(box.keepLastSnapshots, { count: 3, deleteEvicted: true });
    assert.equal(box.expiresAt - before, 100_000);
    await assert.rejects(box.update({ tags: { lost: 'x' }, ports: [1] }), refused(400, 'bad_request'));
    await box.update({ tags: {}, keepLastSnapshots: null });
    assert.deepEqual(box.tags, {});
    assert.equal(box.keepLastSnapshots, undefined);
  });
  test('V109 deleted, its name is free', limit, async () => {
    const one = await Sandbox.create({ ...scope, name: 'to-go', timeout: 60_000 });
    const session = one.currentSession().sessionId;
    await one.delete();
    await assert.rejects(Sandbox.get({ ...scope, name: 'to-go' }), refused(404, 'not_found'));
    await assert.rejects(one.runCommand('true'));
    const two = await Sandbox.create({ ...scope, name: 'to-go', timeout: 60_000 });
    assert.notEqual(two.currentSession().sessionId, session);
    await two.delete();
  });
  test('V091 V111 V116 V117 V118 sessions', limit, async () => {
    const all = await box.listSessions({ limit: 5 });
    assert.equal(all.sessions.length, 1);
    assert.equal(all.sessions[0].id, box.currentSession().sessionId);
    assert.equal(all.sessions[0].status, 'running');
    assert.equal(all.pagination.next, null);
    const now = box.currentSession();
    assert.match(now.sessionId, /^sbx_/);
    assert.equal(now.status, 'running');
    assert.ok(now.createdAt instanceof Date);
    assert.equal(now.createdAt.getTime(), all.sessions[0].createdAt);
  });
  test('V114 V190 more time, up to the most there is', limit, async () => {
    const before = box.expiresAt.getTime();
    await box.extendTimeout(60_000);
    assert.equal(box.expiresAt.getTime() - before, 60_000);
    await assert.rejects(box.extendTimeout(500), refused(400, 'bad_request'));
    await assert.rejects(box.extendTimeout(86_400_000), refused(400, 'sandbox_timeout_invalid'));
  });
  test('V190 a run ends when its time is up', limit, async () => {
    const one = await Sandbox.create({ ...scope, timeout: 1000 });
    await one.runCommand('sleep', ['infinity']).catch(() => {});
    await one.stop(); // Which waits for the end that is under way.
    const { sessions } = await one.listSessions();
    assert.equal(sessions.length, 1);
    assert.equal(sessions[0].status, 'stopped');
    assert.ok(sessions[0].stoppedAt - sessions[0].startedAt >= 1000);
    await one.delete();
  });

  test('V089 V190 a run whose time is up in the midst of an upload', limit, async () => {
    const one = await Sandbox.create({ ...scope, timeout: 1000 });
    const session = `${process.env.INSULA_URL}/v2/sandboxes/sessions/${one.currentSession().sessionId}`;
    const packed = gzipSync(Buffer.concat([randomBytes(1 << 20)]));
    let rest;
    const body = new ReadableStream({ start(to) { to.enqueue(packed.subarray(0, 1000)); rest = to; } });
    const upload = fetch(`${session}/fs/write`, {
      method: 'POST', duplex: 'half', body, headers: { authorization: `Bearer ${key}`, 'content-type': 'application/gzip', 'x-cwd': '/tmp' },
    });
    await one.runCommand('sleep', ['infinity']).catch(() => {});
    rest.enqueue(packed.subarray(1000));
    rest.close();
    const answer = await upload;
    assert.equal(answer.status, 410, await answer.clone().text());
    assert.equal((await answer.json()).error.code, 'sandbox_stopped');
    await one.delete();
  });

  test('V121 to V142 the file system', limit, async () => {
    const { fs } = box;
    await fs.mkdir('tree/deep', { recursive: true });
    await fs.writeFile('tree/a', 'one');
    await fs.appendFile('tree/a', ' two');
    assert.equal(await fs.readFile('tree/a', 'utf8'), 'one two');
    assert.equal(await fs.readFile('tree/a', { encoding: 'base64' }), 'b25lIHR3bw==');
    assert.ok(Buffer.from('one two').equals(await fs.readFile('tree/a')));
    await fs.symlink('a', 'tree/link');
    assert.equal(await fs.readlink('tree/link'), 'a');
    assert.equal(await fs.realpath('tree/link'), '/vercel/sandbox/tree/a');
    assert.deepEqual((await fs.readdir('tree')).sort(), ['a', 'deep', 'link']);
    const kinds = await fs.readdir('tree', { withFileTypes: true });
    assert.deepEqual(kinds.map((each) => [each.name, each.isFile(), each.isDirectory(), each.isSymbolicLink()]).sort(),
      [['a', true, false, false], ['deep', false, true, false], ['link', false, false, true]]);
    const is = await fs.stat('tree/link');
    assert.equal(is.size, 7);
    assert.ok(is.isFile() && (await fs.lstat('tree/link')).isSymbolicLink());
    await fs.chmod('tree/a', 0o600);
    assert.equal((await fs.stat('tree/a')).mode & 0o777, 0o600);
    const mine = await fs.stat('tree/a');
    await fs.chown('tree/a', mine.uid, mine.gid);
    assert.deepEqual([mine.uid, mine.gid].join(' '), (await output('stat', '-c', '%u %g', 'tree/a')).trim());
    await fs.truncate('tree/a', 3);
    await fs.copyFile('tree/a', 'tree/b');
    await fs.rename('tree/b', 'tree/c');
    assert.equal(await fs.readFile('tree/c', 'utf8'), 'one');
    await fs.unlink('tree/c');
    assert.equal(await fs.exists('tree/c'), false);
    await fs.access('tree/a');
    const made = await fs.mkdtemp('/tmp/prefix-');
    assert.match(made, /^\/tmp\/prefix-.{6}$/);
    await fs.rmdir(made);
    const code = (wanted) => (why) => why.code === wanted;
    await assert.rejects(fs.readFile('nothing'), (why) => why.code === 'ENOENT' && why.syscall === 'open' && why.path === 'nothing');
    await assert.rejects(fs.access('nothing'), code('ENOENT'));
    await assert.rejects(fs.mkdir('tree'), refused(400, 'file_error'));
    await assert.rejects(fs.stat('nothing'), code('ENOENT'));
    await assert.rejects(fs.rmdir('tree'), code('ENOTEMPTY'));
    await assert.rejects(fs.symlink('a', 'tree/link'), code('EEXIST'));
    await assert.rejects(fs.readlink('tree/a'), code('EINVAL'));
    await fs.rm('tree', { recursive: true });
    assert.equal(await fs.exists('tree'), false);
  });

  test('V049 V101 V113 V157 to V162 V168 V169 what it may reach', limit, async () => {
    const one = await Sandbox.create({ ...scope, timeout: 60_000, networkPolicy: 'deny-all' });
    assert.equal(one.networkPolicy, 'deny-all');
    await one.update({ networkPolicy: { allow: ['a.example', '*.b.example', 'c.*.example'], subnets: { allow: ['10.0.0.0/8'], deny: ['10.1.0.0/16'] } } });
    const now = await Sandbox.get({ ...scope, name: one.name });
    assert.deepEqual(now.networkPolicy.allow, ['a.example', '*.b.example', 'c.*.example']);
    assert.deepEqual(now.networkPolicy.subnets, { allow: ['10.0.0.0/8'], deny: ['10.1.0.0/16'] });
    for (const bad of [{ allow: ['not a name'] }, { subnets: { allow: ['10.0.0.0/40'] } }, { allow: { 'a.example': [{ transform: [{ headers: { x: '<redacted>' } }] }] } }])
      await assert.rejects(one.update({ networkPolicy: bad }), refused(400, 'bad_request'), JSON.stringify(bad));
    await one.update({ networkPolicy: 'allow-all' });
    await one.updateNetworkPolicy('deny-all');
    assert.equal((await Sandbox.get({ ...scope, name: one.name })).networkPolicy, 'deny-all');
    await one.delete();
  });
  test('V188 V189 the tools that programs expect', limit, async () => {
    const missing = await (await sh('for each in git tar gzip openssl curl base64 find sudo useradd bash; do command -v $each >/dev/null || echo $each; done')).stdout();
    assert.equal(missing, '');
  });
});
