// Sandboxes that persist, their snapshots, forks and drives with the SDK of the Vercel Sandbox service, unmodified, against a
// running Insula: INSULA_URL says where, INSULA_API_KEY with which key. Node.js is started with insula-vercel.mjs. Cases have the
// numbers of the features that they show.
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

import { Sandbox, Snapshot } from '@vercel/sandbox';

const { INSULA_API_KEY: key, INSULA_URL: url } = process.env;
assert.ok(url && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 120_000 };
const scope = { token: key, teamId: 'team_test', projectId: 'prj_persistent' };
const day = 86_400_000;
const refused = (status, code) => (why) => {
  assert.equal(why.response?.status, status, why.message);
  assert.equal(why.json?.error?.code, code, JSON.stringify(why.json));
  return true;
};
const request = async (path, options = {}) => {
  const answer = await fetch(`${url}/v2/sandboxes${path}`, { ...options, headers: { authorization: `Bearer ${key}`, ...options.headers } });
  return { status: answer.status, body: await answer.json() };
};
const create = (name, more = {}) => Sandbox.create({ ...scope, name, timeout: 600_000, ...more });
const run = async (box, script) => {
  const done = await box.runCommand('sh', ['-c', script]);
  assert.equal(done.exitCode, 0, await done.stderr());
  return done.stdout();
};
/** Until it is so; after 10 s what follows says what is not. */
const eventually = async (isSo) => {
  for (let attempt = 0; attempt < 200 && !(await isSo()); ++attempt) await delay(50);
};
const ids = (snapshots) => snapshots.map((each) => each.id);

describe('sandboxes that persist', () => {
  const made = [];
  const kept = async (...words) => { const box = await create(...words); made.push(box); return box; };
  after(async () => { for (const box of made) await box.delete({ deleteOrphanSnapshots: true }).catch(() => {}); }, limit);

  test('V005 V015 V055 V094 V095 V111 stopped, its whole disk is there with the next session, which begins once', limit, async () => {
    let resumes = 0;
    const box = await kept('whole', { env: { GREETING: 'hello' }, ports: [3000], onResume: () => { ++resumes; } });
    assert.equal(box.currentSnapshotId, undefined);
    const first = box.currentSession().sessionId;
    const address = box.domain(3000);
    await run(box, `echo mine > own; sudo sh -c 'echo all > /usr/local/share/kept; chmod 4711 /usr/local/share/kept; mkfifo /opt/pipe; rm /etc/hostname' 2>/dev/null; echo t > /tmp/t; ln own second; sleep 1000 &`);
    const stopped = await box.stop();
    assert.equal(stopped.status, 'stopped');
    assert.equal(box.currentSnapshotId, stopped.snapshot.id);
    assert.equal(stopped.snapshot.status, 'created');
    assert.equal(stopped.snapshot.creationMethod, 'automatic');
    assert.equal(stopped.snapshot.sourceSessionId, first);
    assert.ok(stopped.snapshot.sizeBytes > 0);
    assert.ok(Math.abs(stopped.snapshot.expiresAt - stopped.snapshot.createdAt - 30 * day) < 1000);
    assert.equal((await box.stop()).snapshot.id, stopped.snapshot.id);
    const asleep = await Sandbox.get({ ...scope, name: 'whole' });
    assert.equal(asleep.status, 'stopped');
    assert.equal(asleep.currentSnapshotId, stopped.snapshot.id);
    // The first call that needs a session begins it.
    const [one, two] = await Promise.all([run(box, 'cat own /tmp/t; stat -c %h own; stat -c %a /usr/local/share/kept; stat -c %F /opt/pipe; echo $GREETING; pgrep sleep || echo none'), run(box, 'cat /usr/local/share/kept || sudo cat /usr/local/share/kept')]);
    assert.equal(one, 'mine\nt\n2\n4711\nfifo\nhello\nnone\n');
    assert.equal(two, 'all\n');
    assert.equal(resumes, 1);
    const second = box.currentSession();
    assert.notEqual(second.sessionId, first);
    assert.equal(box.sourceSnapshotId, stopped.snapshot.id);
    assert.equal(box.domain(3000), address);
    const { sessions } = await box.listSessions();
    assert.deepEqual(sessions.map((each) => [each.id, each.status]), [[second.sessionId, 'running'], [first, 'stopped']]);
    const page = await box.listSessions({ limit: 1, sortOrder: 'asc' });
    assert.deepEqual(ids(page.sessions), [first]);
    assert.deepEqual(ids((await box.listSessions({ limit: 1, sortOrder: 'asc', cursor: page.pagination.next })).sessions), [second.sessionId]);
  });

  test('V059 V060 a session that is asked for at the same time begins once', limit, async () => {
    const box = await kept('asked-often');
    await box.stop();
    let resumes = 0;
    const all = await Promise.all(Array.from({ length: 8 }, () => Sandbox.get({ ...scope, name: 'asked-often', resume: true, onResume: () => { ++resumes; } })));
    assert.equal(new Set(all.map((each) => each.currentSession().sessionId)).size, 1);
    assert.equal(resumes, 1);
    // While it stops, a request for the next one waits.
    const [stopped, next] = await Promise.all([all[0].stop(), Sandbox.get({ ...scope, name: 'asked-often', resume: true })]);
    assert.equal(stopped.status, 'stopped');
    assert.equal(next.status, 'running');
    assert.equal(await run(next, 'echo there'), 'there\n');
  });

  test('V052 V104 V065 without a snapshot there is no next session', limit, async () => {
    const box = await kept('gone', { persistent: false });
    assert.equal((await box.stop()).snapshot, undefined);
    await assert.rejects(Sandbox.get({ ...scope, name: 'gone', resume: true }), refused(410, 'snapshot_not_found'));
    let creates = 0;
    const anew = await Sandbox.getOrCreate({ ...scope, name: 'gone', resume: true, timeout: 600_000, onCreate: () => { ++creates; } });
    assert.equal(creates, 1);
    await run(anew, 'echo kept > file');
    const { snapshot } = await anew.stop();
    await Snapshot.get({ ...scope, snapshotId: snapshot.id }).then((each) => each.delete());
    await assert.rejects(Sandbox.get({ ...scope, name: 'gone', resume: true }), refused(410, 'snapshot_not_found'));
    const last = await Sandbox.getOrCreate({ ...scope, name: 'gone', resume: true, timeout: 600_000, onCreate: () => { ++creates; } });
    assert.equal(creates, 2);
    await last.update({ persistent: false });
    assert.equal((await last.stop()).snapshot, undefined);
  });

  test('V115 V053 V170 to V175 V180 V184 a manual snapshot ends its session, and is kept as it says', limit, async () => {
    const box = await kept('manual', { persistent: false, snapshotExpiration: 2 * day });
    await run(box, 'echo 1 > file');
    const session = box.currentSession().sessionId;
    await assert.rejects(box.snapshot({ expiration: 5 }), refused(400, 'bad_request'));
    assert.equal((await Sandbox.get({ ...scope, name: 'manual' })).status, 'running');
    const one = await box.snapshot();
    assert.equal(one.status, 'created');
    assert.match(one.snapshotId, /^snap_/);
    assert.equal(one.sourceSessionId, session);
    assert.ok(one.sizeBytes > 0 && one.createdAt instanceof Date);
    assert.ok(Math.abs(one.expiresAt - one.createdAt - 2 * day) < 1000);
    const { body } = await request(`/sessions/${session}?teamId=team_test`);
    assert.equal(body.session.status, 'stopped');
    assert.equal((await Sandbox.get({ ...scope, name: 'manual' })).currentSnapshotId, one.snapshotId);
    // The call itself begins the next session, whose snapshot it is.
    const two = await box.snapshot({ expiration: 0 });
    assert.equal(two.expiresAt, undefined);
    assert.equal((await Snapshot.get({ ...scope, snapshotId: two.snapshotId })).status, 'created');
    const { body: read } = await request(`/snapshots/${two.snapshotId}?teamId=team_test`);
    assert.equal(read.snapshot.parentId, one.snapshotId);
    assert.equal(read.snapshot.creationMethod, 'manual');
    assert.equal(await run(box, 'cat file'), '1\n');
    const again = await Snapshot.get({ ...scope, snapshotId: one.snapshotId });
    await again.delete();
    assert.equal(again.status, 'deleted');
    assert.equal((await Snapshot.get({ ...scope, snapshotId: one.snapshotId })).status, 'deleted');
    await again.delete(); // A request that is sent again.
    await assert.rejects(Snapshot.get({ ...scope, snapshotId: `snap_${'a'.repeat(26)}` }), refused(404, 'not_found'));
    await assert.rejects(Snapshot.get({ ...scope, snapshotId: 'snap_x' }), refused(404, 'not_found'));
    // Of a session that is over or ends there is none.
    const over = await request(`/sessions/${session}/snapshot?teamId=team_test`, { method: 'POST' });
    assert.deepEqual([over.status, over.body.error.code], [410, 'sandbox_stopped']);
  });

  test('a snapshot of a session that goes on', limit, async () => {
    const box = await kept('live', { persistent: false });
    await run(box, 'echo before > file; sleep 1000 &');
    const session = box.currentSession().sessionId;
    const taken = await request(`/sessions/${session}/snapshot?teamId=team_test`, { method: 'POST', body: JSON.stringify({ expiration: day, __insula: { keepRunning: true } }) });
    assert.equal(taken.status, 201, JSON.stringify(taken.body));
    assert.equal(taken.body.session.status, 'running');
    assert.equal(taken.body.snapshot.expiresAt - taken.body.snapshot.createdAt, day);
    assert.equal(await run(box, 'echo after > file; pgrep -c sleep'), '1\n');
    assert.equal((await Sandbox.get({ ...scope, name: 'live' })).currentSnapshotId, taken.body.snapshot.id);
    await box.stop();
    assert.equal(await run(box, 'cat file'), 'before\n');
  });

  test('V044 a sandbox from a snapshot, also of one that was deleted', limit, async () => {
    const box = await kept('origin');
    await run(box, 'echo from > file');
    const { snapshotId } = await box.snapshot();
    const copy = await kept('from-snapshot', { source: { type: 'snapshot', snapshotId } });
    assert.equal(copy.sourceSnapshotId, snapshotId);
    assert.equal(copy.currentSnapshotId, snapshotId);
    assert.equal(await run(copy, 'cat file'), 'from\n');
    const used = await Snapshot.get({ ...scope, snapshotId });
    assert.ok(used.updatedAt >= used.createdAt);
    await box.delete();
    await copy.stop();
    assert.equal(await run(copy, 'cat file; echo more > file'), 'from\n');
    for (const wrong of [`snap_${'b'.repeat(26)}`, 'snap_x', 'x'])
      await assert.rejects(create('no-such', { source: { type: 'snapshot', snapshotId: wrong } }), refused(410, 'snapshot_not_found'));
    await assert.rejects(Sandbox.create({ ...scope, projectId: 'prj_other', name: 'theirs', source: { type: 'snapshot', snapshotId } }), refused(410, 'snapshot_not_found'));
    await (await Snapshot.get({ ...scope, snapshotId })).delete();
    await assert.rejects(create('too-late', { source: { type: 'snapshot', snapshotId } }), refused(410, 'snapshot_not_found'));
    assert.equal(await run(copy, 'cat file'), 'more\n');
  });

  test('V107 back to an earlier snapshot', limit, async () => {
    const box = await kept('back');
    await run(box, 'echo 1 > file');
    const one = await box.snapshot();
    assert.equal(await run(box, 'echo 2 > file; cat file'), '2\n');
    const { snapshot: two } = await box.stop();
    await assert.rejects(box.update({ currentSnapshotId: `snap_${'c'.repeat(26)}`, tags: { a: 'b' } }), refused(410, 'snapshot_not_found'));
    assert.deepEqual(box.tags ?? {}, {});
    await box.update({ currentSnapshotId: one.snapshotId, tags: { a: 'b' } });
    assert.equal(box.currentSnapshotId, one.snapshotId);
    assert.deepEqual(box.tags, { a: 'b' });
    assert.equal(box.status, 'stopped');
    assert.equal(await run(box, 'cat file'), '1\n');
    // Of one that runs it holds for the next session, unless this one leaves its own.
    await box.update({ persistent: false });
    await box.update({ currentSnapshotId: two.id });
    assert.equal(await run(box, 'cat file'), '1\n');
    await box.stop();
    assert.equal(await run(box, 'cat file'), '2\n');
  });

  test('V054 V106 V017 so many snapshots stay as are to be kept', limit, async () => {
    const box = await kept('few', { keepLastSnapshots: { count: 2 } });
    const all = [];
    for (let i = 0; i < 4; ++i) all.push((await box.snapshot()).snapshotId);
    const there = async () => ids((await box.listSnapshots()).snapshots);
    await eventually(async () => (await there()).length === 2);
    assert.deepEqual(await there(), [all[3], all[2]]);
    assert.equal((await Snapshot.get({ ...scope, snapshotId: all[0] })).status, 'deleted');
    // One with which another sandbox begins stays.
    const other = await kept('few-other', { source: { type: 'snapshot', snapshotId: all[2] } });
    await box.snapshot();
    await box.snapshot();
    await eventually(async () => (await there()).length === 3);
    assert.equal((await there())[2], all[2]);
    await other.stop();
    // They may stay until they expire.
    await box.update({ keepLastSnapshots: { count: 1, expiration: 0, deleteEvicted: false }, snapshotExpiration: 3 * day });
    const last = await box.snapshot();
    assert.equal(last.expiresAt, undefined);
    const before = (await there())[1];
    const expires = async () => (await Snapshot.get({ ...scope, snapshotId: before })).expiresAt;
    const at = (each) => each && Math.round((each - Date.now()) / day);
    await eventually(async () => at(await expires()) === 3);
    assert.equal(at(await expires()), 3);
  });

  test('V112 V176 to V179 lists of snapshots', limit, async () => {
    const projectId = 'prj_lists';
    const box = await create('listed', { projectId });
    const other = await create('listed-other', { projectId });
    const own = [];
    for (let i = 0; i < 5; ++i) own.push((await box.snapshot()).snapshotId);
    const { snapshot: theirs } = await other.stop();
    assert.deepEqual(ids((await box.listSnapshots()).snapshots), [...own].reverse());
    assert.deepEqual(ids((await box.listSnapshots({ sortOrder: 'asc' })).snapshots), own);
    const some = await box.listSnapshots({ limit: 2 });
    assert.deepEqual(ids((await box.listSnapshots({ limit: 2, cursor: some.pagination.next })).snapshots), [own[2], own[1]]);
    const page = await Snapshot.list({ ...scope, projectId, name: 'listed', limit: 2 });
    assert.deepEqual(page.pagination.count, 2);
    assert.deepEqual(ids(await page.toArray()), [...own].reverse());
    const all = await Snapshot.list({ ...scope, projectId, limit: 4 });
    assert.deepEqual(ids(await all.toArray()), [theirs.id, ...[...own].reverse()]);
    const turned = await Snapshot.list({ ...scope, projectId, limit: 4, sortOrder: 'asc' });
    assert.deepEqual(ids(await turned.toArray()), [...own, theirs.id]);
    assert.deepEqual((await Snapshot.list({ ...scope, projectId: 'prj_empty' })).snapshots, []);
    assert.deepEqual((await Snapshot.list({ ...scope, projectId, name: 'nobody' })).snapshots, []);
    for (const wrong of ['limit=0', 'limit=51', 'sortOrder=up', 'cursor=x'])
      assert.equal((await request(`/snapshots?teamId=team_test&project=${projectId}&${wrong}`)).status, 400, wrong);
    assert.equal((await request('/snapshots?teamId=team_test')).status, 400);
    // V109 V110: they stay, unless it is said.
    await other.delete();
    assert.equal((await Snapshot.get({ ...scope, projectId, snapshotId: theirs.id })).status, 'created');
    const heir = await create('heir', { projectId, source: { type: 'snapshot', snapshotId: own[0] } });
    await box.delete({ deleteOrphanSnapshots: true });
    assert.deepEqual(ids((await Snapshot.list({ ...scope, projectId })).snapshots), [theirs.id, own[0]]);
    await heir.delete();
  });

  test('V181 V182 V183 the tree, in both directions, with siblings and what was deleted', limit, async () => {
    const box = await kept('tree');
    const root = (await box.snapshot()).snapshotId;
    const line = [root];
    for (let i = 0; i < 3; ++i) line.push((await box.snapshot()).snapshotId);
    const [, one, two, three] = line;
    const siblings = [];
    for (let i = 0; i < 2; ++i) {
      await box.update({ currentSnapshotId: root });
      siblings.push((await box.snapshot()).snapshotId);
    }
    await (await Snapshot.get({ ...scope, snapshotId: one })).delete();
    const tree = async (snapshotId, more = {}) => Snapshot.tree({ ...scope, snapshotId, ...more });
    const up = await tree(three);
    assert.equal(up.anchor.snapshot.id, three);
    assert.deepEqual(up.snapshots.map((each) => [each.snapshot.id, each.snapshot.status, each.count]), [[two, 'created', '1'], [one, 'deleted', '3'], [root, 'created', '1']]);
    assert.deepEqual(ids(up.snapshots[1].siblings), [siblings[1], siblings[0]]);
    assert.equal(up.pagination.next, null);
    const down = await tree(one, { sortOrder: 'asc' });
    assert.deepEqual(down.snapshots.map((each) => each.snapshot.id), [two, three]);
    assert.equal(down.anchor.count, '3');
    // Where there are several, along the newest.
    assert.deepEqual((await tree(root, { sortOrder: 'asc' })).snapshots.map((each) => each.snapshot.id), [siblings[1]]);
    const paged = await tree(three, { limit: 1 });
    assert.equal(paged.pagination.next, two);
    assert.deepEqual((await paged.toArray()).map((each) => each.snapshot.id), [two, one, root]);
    await assert.rejects(tree(`snap_${'d'.repeat(26)}`), refused(404, 'not_found'));
    assert.equal((await request(`/snapshots/tree?teamId=team_test&project=prj_persistent&snapshotId=${root}&limit=11`)).status, 400);
  });

  test('V111 V112 V114 V115 V179 V180 V183 V184 what is aborted before it is sent changes nothing', limit, async () => {
    const box = await kept('aborted');
    await box.snapshot();
    const session = box.currentSession().sessionId;
    const { expiresAt } = await Sandbox.get({ ...scope, name: 'aborted', resume: true });
    const { snapshots: [{ id: snapshotId }] } = await box.listSnapshots();
    const snapshot = await Snapshot.get({ ...scope, snapshotId });
    const signal = AbortSignal.abort();
    for (const call of [
      () => box.listSessions({ signal }), () => box.listSnapshots({ signal }), () => box.extendTimeout(60_000, { signal }), () => box.snapshot({ signal }),
      () => Snapshot.list({ ...scope, signal }), () => Snapshot.get({ ...scope, snapshotId, signal }), () => Snapshot.tree({ ...scope, snapshotId, signal }),
      () => snapshot.delete({ signal }),
    ])
      await assert.rejects(call(), { name: 'AbortError' }, call.toString());
    const now = await Sandbox.get({ ...scope, name: 'aborted' });
    assert.deepEqual([now.status, now.expiresAt, now.currentSnapshotId], ['running', expiresAt, snapshotId]);
    assert.notEqual(now.currentSession().sessionId, session);
    assert.equal((await Snapshot.get({ ...scope, snapshotId })).status, 'created');
    // Of a list that is read page by page, the signal ends what is left.
    const abort = new AbortController();
    const seen = [];
    await assert.rejects(async () => {
      for await (const each of await Snapshot.list({ ...scope, limit: 1, signal: abort.signal })) {
        seen.push(each);
        abort.abort();
      }
    }, { name: 'AbortError' });
    assert.equal(seen.length, 1);
  });

  test('V067 V068 a fork has what its source has', limit, async () => {
    const box = await kept('source', { env: { SECRET: 'copied' }, tags: { a: 'b' }, ports: [3000], networkPolicy: 'deny-all', resources: { vcpus: 4 }, keepLastSnapshots: { count: 4 } });
    await run(box, 'echo kept > file');
    await box.stop();
    await run(box, 'echo newer > file');
    const one = await Sandbox.fork({ ...scope, sourceSandbox: 'source' });
    made.push(one);
    assert.equal(await run(one, 'cat file; echo $SECRET'), 'kept\ncopied\n');
    assert.deepEqual([one.tags, one.vcpus, one.networkPolicy, one.keepLastSnapshots.count], [{ a: 'b' }, 4, 'deny-all', 4]);
    assert.notEqual(one.domain(3000), box.domain(3000));
    assert.equal(await run(box, 'cat file'), 'newer\n');
    const two = await Sandbox.fork({ ...scope, sourceSandbox: 'source', name: 'forked', env: { OTHER: 'own' }, tags: {}, ports: [], networkPolicy: 'allow-all', timeout: 300_000 });
    made.push(two);
    assert.equal(await run(two, 'echo $SECRET $OTHER'), 'own\n');
    assert.deepEqual([two.name, two.tags, two.routes, two.networkPolicy, two.timeout], ['forked', {}, [], 'allow-all', 300_000]);
    await assert.rejects(Sandbox.fork({ ...scope, sourceSandbox: 'source', name: 'forked' }), refused(400, 'bad_request'));
    await assert.rejects(Sandbox.fork({ ...scope, sourceSandbox: 'no-such' }), refused(404, 'not_found'));
    await assert.rejects(Sandbox.fork({ ...scope, sourceSandbox: 'source', ports: [1] }), refused(400, 'bad_request'));
    // Without a snapshot it begins with the image.
    const fresh = await kept('unsaved');
    await run(fresh, 'echo lost > file');
    const three = await Sandbox.fork({ ...scope, sourceSandbox: 'unsaved' });
    made.push(three);
    assert.equal(await run(three, 'ls -A'), '');
    // Fork of fork.
    let last = two;
    for (let i = 0; i < 20; ++i) {
      await run(last, `echo ${i} >> generations`);
      await last.stop();
      last = await Sandbox.fork({ ...scope, sourceSandbox: last.name, name: `generation-${i}` });
      made.push(last);
    }
    assert.equal(await run(last, 'cat file; wc -l < generations'), 'kept\n20\n');
  });

  test('V099 V101 V018 to V023 the next session has what was changed, and the sums count all', limit, async () => {
    const box = await kept('changed', { resources: { vcpus: 2 } });
    await box.stop();
    await box.update({ resources: { vcpus: 4 }, networkPolicy: 'deny-all', timeout: 120_000 });
    assert.notEqual((await box.runCommand('curl', ['-sS', '-m', '5', 'http://192.0.2.1/'])).exitCode, 0);
    assert.equal(box.vcpus, 4);
    const session = box.currentSession();
    assert.equal(box.expiresAt - session.createdAt < 130_000, true);
    await box.stop();
    const now = await Sandbox.get({ ...scope, name: 'changed' });
    const { sessions } = await now.listSessions();
    assert.equal(now.totalDurationMs, sessions.reduce((sum, each) => sum + each.duration, 0));
    assert.equal(now.totalActiveCpuDurationMs, sessions.reduce((sum, each) => sum + each.activeCpuDurationMs, 0));
  });

  test('its time is up: it is stopped, and its files are kept', limit, async () => {
    const box = await kept('short', { timeout: 2_000 });
    await run(box, 'echo kept > file');
    const session = box.currentSession().sessionId;
    await eventually(async () => (await request(`/sessions/${session}?teamId=team_test`)).body.session.status === 'stopped');
    const asleep = await Sandbox.get({ ...scope, name: 'short' });
    assert.equal(asleep.status, 'stopped');
    assert.match(asleep.currentSnapshotId, /^snap_/);
    await asleep.update({ timeout: 600_000 });
    assert.equal(await run(asleep, 'cat file'), 'kept\n');
  });

  test('deadline, stop, snapshot and delete at the same moment', limit, async () => {
    for (let i = 0; i < 5; ++i) {
      const box = await create(`race-${i}`, { timeout: 1_000 });
      await delay(Math.max(0, box.expiresAt - Date.now() - 40)); // Whatever comes first, each is answered.
      const session = box.currentSession().sessionId;
      const post = (what) => request(`/sessions/${session}/${what}?teamId=team_test`, { method: 'POST' });
      const all = await Promise.all([post('stop'), post('snapshot'), post('stop'), box.delete().then(() => ({ status: 200 }))]);
      for (const { status, body } of all) assert.ok([200, 201, 400, 404, 410, 422].includes(status), `${status} ${JSON.stringify(body)}`);
      await assert.rejects(Sandbox.get({ ...scope, name: `race-${i}` }), refused(404, 'not_found'));
    }
  });
});
