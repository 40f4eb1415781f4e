// Drives with the SDK of the Vercel Sandbox service, unmodified, against a running Insula: INSULA_URL says where,
// INSULA_API_KEY with which key. Node.js is started with insula-vercel.mjs.
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

import { Drive, Sandbox } from '@vercel/sandbox';

const { INSULA_API_KEY: key, INSULA_URL: url } = process.env;
assert.ok(url && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 120_000 };
const scope = { token: key, teamId: 'team_test', projectId: 'prj_drives' };
const refused = (status, code) => (why) => {
  assert.equal(why.response?.status, status, why.message);
  assert.equal(why.json?.error?.code, code, JSON.stringify(why.json));
  return true;
};
const request = async (method, path, body) => {
  const answer = await fetch(`${url}/v2/sandboxes${path}`, { method, body: body && JSON.stringify(body), headers: { authorization: `Bearer ${key}` } });
  return { status: answer.status, body: await answer.json() };
};
const drive = (name, more = {}) => Drive.getOrCreate({ ...scope, name, ...more });
const create = (name, mounts, more = {}) => Sandbox.create({ ...scope, name, timeout: 600_000, mounts, ...more });
const run = async (box, script) => {
  const done = await box.runCommand('sh', ['-c', script]);
  assert.equal(done.exitCode, 0, await done.stderr());
  return done.stdout();
};
/** Until it is so; after 10 s what follows says what is not. */
const eventually = async (isSo) => {
  for (let attempt = 0; attempt < 200 && !(await isSo()); ++attempt) await delay(50);
};
const isFree = async (name) => (await drive(name)).currentSandboxName === undefined;

describe('drives', () => {
  const made = [];
  const kept = async (...words) => { const box = await create(...words); made.push(box); return box; };
  after(async () => { for (const box of made) await box.delete({ deleteOrphanSnapshots: true }).catch(() => {}); }, limit);

  test('one is made once, with its size and its region', limit, async () => {
    const first = await drive('once', { maxSize: 64 << 20, region: 'sfo1' });
    assert.match(first.driveId, /^drv_/);
    assert.equal(first.name, 'once');
    assert.equal(first.projectId, scope.projectId);
    assert.equal(first.region, 'sfo1');
    assert.equal(first.maxSize, 64 << 20);
    assert.ok(Math.abs(first.createdAt - Date.now()) < 60_000);
    assert.equal(first.currentSandboxName, undefined);
    const again = await drive('once', { maxSize: 1 << 30 });
    assert.equal(again.driveId, first.driveId);
    assert.equal(again.maxSize, 64 << 20);
    assert.equal((await drive('usual')).maxSize, 10 * 1024 ** 3);
    const calls = [];
    for (let i = 0; i < 2; ++i) calls.push((await request('POST', '/drives/twice', { projectId: scope.projectId })).status);
    assert.deepEqual(calls, [201, 200]);
    const got = await request('GET', `/drives/once?projectId=${scope.projectId}`);
    assert.equal(got.body.drive.id, first.driveId);
    assert.equal((await request('GET', `/drives/none?projectId=${scope.projectId}`)).status, 404);
    assert.equal((await request('GET', '/drives/once?projectId=prj_other')).status, 404);
    // It is no sandbox of the project's.
    const { sandboxes } = await Sandbox.list({ ...scope });
    assert.ok(!sandboxes.some((each) => each.name === 'once'));
    await assert.rejects(Sandbox.get({ ...scope, name: 'once' }), refused(404, 'not_found'));
  });

  test('what a session writes to one the next sandbox reads', limit, async () => {
    const shared = await drive('shared');
    const writer = await kept('writer', { '/data/in/here': shared });
    assert.deepEqual(writer.mounts, { '/data/in/here': { drive: 'shared', mode: 'read-write' } });
    assert.equal(await run(writer, 'ls -A /data/in/here'), '');
    await run(writer, 'cd /data/in/here; echo word > file; mkdir -p a/b; ln -s file link; chmod 600 file; sudo chown 7:8 a');
    const now = await drive('shared');
    assert.equal(now.currentSandboxName, 'writer');
    assert.equal(now.currentSessionId, writer.currentSession().sessionId);
    const { drives } = await Drive.list({ ...scope });
    assert.equal(drives.find((each) => each.name === 'shared').currentSandboxName, 'writer');

    // One sandbox at a time writes to it.
    await assert.rejects(create('second', { '/data': shared }), refused(409, 'conflict'));
    await assert.rejects(Sandbox.get({ ...scope, name: 'second' }), refused(404, 'not_found'));
    await assert.rejects(shared.delete(), refused(409, 'conflict'));

    // What it is now stays so for a sandbox that has it as a snapshot.
    const reader = await kept('reader', { '/before': shared.snapshot() });
    assert.deepEqual(reader.mounts, { '/before': { drive: 'shared', mode: 'snapshot' } });
    await run(writer, 'echo later > /data/in/here/file');
    assert.equal(await run(reader, 'cat /before/link; stat -c %u:%g:%a /before/a; stat -c %U /before/file'), 'word\n7:8:755\nvercel-sandbox\n');
    assert.equal((await reader.runCommand('sh', ['-c', 'echo no > /before/file'])).exitCode, 2);

    // And one that reads it has it as it becomes.
    const live = await request('POST', '', { projectId: scope.projectId, name: 'live', timeout: 600_000, mounts: { '/now': { drive: 'shared', mode: 'read-only' } } });
    assert.equal(live.status, 200, JSON.stringify(live.body));
    const other = await Sandbox.get({ ...scope, name: 'live' });
    made.push(other);
    assert.equal(await run(other, 'cat /now/file'), 'later\n');
    await run(writer, 'echo more >> /data/in/here/file');
    assert.equal(await run(other, 'cat /now/file'), 'later\nmore\n');

    await writer.stop();
    const next = await kept('next', { '/data': shared });
    assert.equal(await run(next, 'cat /data/file; echo mine > /data/mine; rm /data/link'), 'later\nmore\n');
    assert.equal(await run(other, 'ls /now'), 'a\nfile\nmine\n');
    await next.delete();

    // The first one has it again with its next session.
    assert.equal(await run(writer, 'ls /data/in/here'), 'a\nfile\nmine\n');
    assert.equal((await drive('shared')).currentSessionId, writer.currentSession().sessionId);
    // Its own snapshots have nothing of it.
    await writer.stop();
    const copy = await Sandbox.create({ ...scope, name: 'copy', source: { type: 'snapshot', snapshotId: writer.currentSnapshotId }, timeout: 600_000 });
    made.push(copy);
    assert.equal(await run(copy, 'ls -A /data/in/here'), '');
  });

  test('PATCH gives the next session others, and a fork has what its source has', limit, async () => {
    const [one, two] = [await drive('one'), await drive('two')];
    const box = await kept('patched', { '/one': one });
    await run(box, 'echo 1 > /one/file');
    await box.update({ mounts: { '/two': two, '/one': one.snapshot() } });
    assert.equal(await run(box, 'ls /one; ls /two 2>/dev/null || echo none'), 'file\nnone\n');
    await box.stop();
    assert.equal(await run(box, 'cat /one/file; echo 2 > /two/file; touch /one/no 2>/dev/null || echo no'), '1\nno\n');
    await assert.rejects(Sandbox.fork({ ...scope, sourceSandbox: 'patched', name: 'twin' }), refused(409, 'conflict'));
    await box.update({ mounts: {} });
    assert.equal(box.mounts === undefined || Object.keys(box.mounts).length === 0, true);
    await box.stop();
    await eventually(() => isFree('two'));
    assert.equal(await run(box, 'ls -A /one /two'), '/one:\n\n/two:\n');
    await box.update({ mounts: { '/two': two.snapshot() } });
    await box.stop();
    const twin = await Sandbox.fork({ ...scope, sourceSandbox: 'patched', name: 'twin' });
    made.push(twin);
    assert.equal(await run(twin, 'cat /two/file'), '2\n');
  });

  test('a fork has what its source had, and then its own', limit, async () => {
    const fork = (of, name, project = scope.projectId) => request('POST', `/drives/${of}/fork?projectId=${project}`, { name });
    const source = await drive('source', { maxSize: 32 << 20, region: 'sfo1' });
    const early = await fork('source', 'early');
    assert.deepEqual([early.status, early.body.error?.code], [409, 'drive_not_initialized']);
    const writer = await kept('fork-writer', { '/data': source });
    await run(writer, 'echo first > /data/file; mkdir -m 700 /data/own');
    await writer.stop();

    const made = await fork('source', 'branch');
    assert.equal(made.status, 201, JSON.stringify(made.body));
    const branch = made.body.drive;
    assert.match(branch.id, /^drv_/);
    assert.notEqual(branch.id, source.driveId);
    assert.deepEqual([branch.name, branch.region, branch.maxSizeBytes, branch.parentDriveId, branch.rootDriveId], ['branch', 'sfo1', 32 << 20, source.driveId, source.driveId]);
    const second = (await fork('branch', 'branch-of-branch')).body.drive;
    assert.deepEqual([second.parentDriveId, second.rootDriveId], [branch.id, source.driveId]);
    const byId = await request('GET', `/drives/${second.id}?projectId=${scope.projectId}`);
    assert.deepEqual(byId.body.drive, second);
    assert.equal((await request('GET', `/drives/${second.id}?projectId=prj_other`)).status, 404);

    const box = await kept('forks', { '/source': source, '/branch': await drive('branch'), '/second': await drive('branch-of-branch') });
    assert.equal(await run(box, 'cat /source/file /branch/file /second/file; stat -c %a:%U /second/own'), 'first\nfirst\nfirst\n700:vercel-sandbox\n');
    await run(box, 'echo other > /branch/file; rm /second/file');
    assert.equal(await run(box, 'cat /source/file; ls /second'), 'first\nown\n');
    // Its size is its own ceiling.
    assert.notEqual((await box.runCommand('sh', ['-c', 'head -c 64M /dev/urandom > /branch/large'])).exitCode, 0);
    // One that a session writes to is forked as it is at that moment.
    const live = await fork('branch', 'live-fork');
    assert.equal(live.status, 201, JSON.stringify(live.body));
    await box.stop();
    await source.delete();
    const later = await kept('fork-reader', { '/live': await drive('live-fork') });
    assert.equal(await run(later, 'cat /live/file'), 'other\n');

    assert.deepEqual([(await fork('branch', 'live-fork')).body.error.code, (await fork('source', 'x')).status, (await fork('branch', 'x', 'prj_other')).status], ['conflict', 404, 404]);
    for (const name of ['a b', '', 5, second.id]) assert.equal((await fork('branch', name)).status, 400, JSON.stringify(name));
    assert.equal((await request('POST', '/drives/branch/fork', { name: 'x' })).status, 400);
    assert.equal((await request('POST', `/drives/${second.id}`, { projectId: scope.projectId })).status, 400);
  });

  test('bad mounts are refused before anything is made', limit, async () => {
    await drive('bad');
    const wrong = async (mounts) => {
      const answer = await request('POST', '', { projectId: scope.projectId, name: 'bad-mounts', mounts });
      assert.equal(answer.status, 400, JSON.stringify([mounts, answer.body]));
      assert.equal(answer.body.error.code, 'bad_request');
    };
    for (const path of ['data', '/', '/a/../b', '/a//b', '/a/', '/proc/x', '/sys', '/dev/shm', `/${'x'.repeat(600)}`, '/a\nb'])
      await wrong({ [path]: { drive: 'bad' } });
    await wrong({ '/a': { drive: 'bad', mode: 'append' } });
    await wrong({ '/a': { drive: 'no such/name' } });
    await wrong({ '/a': 'bad' });
    await wrong(['bad']);
    await wrong({ '/a': { drive: 'bad', mode: 'snapshot' }, '/a/b': { drive: 'bad', mode: 'snapshot' } });
    await wrong({ '/a': { drive: 'bad' }, '/b': { drive: 'bad' } });
    await wrong(Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`/d${i}`, { drive: 'bad', mode: 'snapshot' }])));
    const missing = await request('POST', '', { projectId: scope.projectId, name: 'without', mounts: { '/a': { drive: 'missing' } } });
    assert.equal(missing.status, 404);
    assert.equal(missing.body.error.code, 'not_found');
    assert.match(missing.body.error.message, /Drive 'missing' not found/);
    await assert.rejects(Sandbox.get({ ...scope, name: 'without' }), refused(404, 'not_found'));
    for (const [name, body] of [['a b', {}], ['x'.repeat(65), {}], ['size', { maxSizeBytes: 5 }], ['size', { maxSizeBytes: 'x' }], ['size', { maxSizeBytes: 2 ** 50 }]]) {
      const answer = await request('POST', `/drives/${encodeURIComponent(name)}`, { projectId: scope.projectId, ...body });
      assert.equal(answer.status, 400, JSON.stringify([name, body, answer.body]));
    }
    assert.equal((await request('POST', '/drives/size', {})).status, 400);
    assert.equal((await request('GET', '/drives')).status, 400);
  });

  test('a full one is full for its session alone', limit, async () => {
    const box = await kept('filler', { '/data': await drive('small', { maxSize: 16 << 20 }) });
    const filled = await box.runCommand('sh', ['-c', 'head -c 64M /dev/urandom > /data/large']);
    assert.notEqual(filled.exitCode, 0);
    assert.match(await filled.stderr(), /No space left|quota/i);
    assert.equal(await run(box, 'rm /data/large; head -c 8M /dev/urandom > /tmp/file; echo room > /data/file; cat /data/file'), 'room\n');
  });

  test('lists have a page after another, and what is deleted is in none', limit, async () => {
    const other = { ...scope, projectId: 'prj_many_drives' };
    for (let i = 0; i < 5; ++i) await Drive.getOrCreate({ ...other, name: `d-${i}` });
    const names = (await (await Drive.list({ ...other, limit: 2 })).toArray()).map((each) => each.name);
    assert.deepEqual(names, ['d-4', 'd-3', 'd-2', 'd-1', 'd-0']);
    const page = await Drive.list({ ...other, limit: 3, sortBy: 'name', sortOrder: 'asc' });
    assert.deepEqual(page.drives.map((each) => each.name), ['d-0', 'd-1', 'd-2']);
    assert.equal(page.pagination.count, 3);
    const some = await Drive.list({ ...other, sortBy: 'name', namePrefix: 'd-3' });
    assert.deepEqual(some.drives.map((each) => each.name), ['d-3']);
    const gone = await Drive.getOrCreate({ ...other, name: 'd-1' });
    await gone.delete();
    await assert.rejects(gone.delete(), refused(404, 'not_found'));
    assert.equal((await Drive.list({ ...other })).drives.length, 4);
    const anew = await Drive.getOrCreate({ ...other, name: 'd-1' });
    assert.equal(anew.driveId, gone.driveId);
    for (const each of (await Drive.list({ ...other })).drives) await each.delete();
    assert.deepEqual((await Drive.list({ ...other })).drives, []);
  });
});
