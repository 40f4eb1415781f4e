// Stops, resumes, snapshots, forks and deletions with the SDK of the Vercel Sandbox service, unmodified, while the server is killed
// as by kill -9 and started again: INSULA_PROGRAM is the server, INSULA_URL says where it is to be. Node.js is started with
// insula-vercel.mjs.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

import { Sandbox, Snapshot } from '@vercel/sandbox';

import { KillableServer } from './killable_server.mjs';

const { INSULA_PROGRAM: program, INSULA_URL: url } = process.env;
assert.ok(program && url, 'INSULA_PROGRAM or INSULA_URL is not set');

const key = 'key-of-this-test';
const limit = { timeout: 120_000 };
const scope = { token: key, teamId: 'team_test' };

let server;

/** Until it is so; after 10 s what follows says what is not. */
async function eventually(isSo) {
  for (let attempt = 0; attempt < 200 && !(await isSo()); ++attempt) await delay(50);
}

async function run(box, script) {
  const done = await server.persistently(() => box.runCommand('sh', ['-c', script]));
  assert.equal(done.exitCode, 0);
  return done.stdout();
}

/** Of one for which a first answer may have been lost. */
async function made(work, scope, name) {
  try {
    return await server.persistently(work);
  } catch (why) {
    assert.equal(why.response?.status, 400, why.message);
    assert.match(why.message, /already exists/);
    return Sandbox.get({ ...scope, name });
  }
}

/** What is true whatever happened: one session at most, and each snapshot that is listed can be used. */
async function isWhole(box, projectId) {
  const { sessions } = await box.listSessions();
  assert.ok(sessions.filter((each) => ['pending', 'running', 'stopping', 'snapshotting'].includes(each.status)).length <= 1);
  assert.equal(new Set(sessions.map((each) => each.id)).size, sessions.length);
  const { snapshots } = await Snapshot.list({ ...scope, projectId });
  for (const { id, status } of snapshots) {
    assert.equal(status, 'created');
    let from;
    try {
      from = await Sandbox.create({ ...scope, projectId, timeout: 60_000, persistent: false, source: { type: 'snapshot', snapshotId: id } });
    } catch (why) { // It has made room meanwhile, and is in no list then.
      assert.equal(why.response?.status, 410, why.message);
      assert.ok(!(await Snapshot.list({ ...scope, projectId })).snapshots.some((each) => each.id === id));
      continue;
    }
    assert.match(await run(from, 'cat file'), /^\d\n$/);
    await from.delete();
  }
  return { sessions, snapshots };
}

/** A sandbox whose server ends itself at the step while `work` is under way. `prepare` comes before. */
async function killed(t, { what, step, prepare = async () => {}, dies }, work) {
  await server.start();
  const projectId = `prj_${what}_${step.replace(/\W/g, '_')}`;
  const mine = { ...scope, projectId };
  const box = await Sandbox.create({ ...mine, name: 'wanted', timeout: 600_000 });
  await run(box, 'echo 1 > file');
  await prepare(box, mine);
  await server.end('SIGTERM'); // A sandbox that runs is the next server's.
  const kills = server.kills;
  await server.start(step, dies).catch(() => server.ready); // The step may be one of its own beginning.
  await work(box, mine);
  await eventually(() => server.kills > kills); // It may end behind its answer.
  await server.ready;
  assert.equal(server.kills, kills + 1, 'the server was not killed');
  return { box, mine, ...(await isWhole(box, projectId)) };
}

describe('sandboxes that persist whose server is killed', () => {
  before(async () => { server = new KillableServer({ program, url, key, state: await mkdtemp('/var/tmp/insula-killed-') }); }, limit);
  afterEach(() => server.end(), limit);
  after(() => rm(server.state, { recursive: true, force: true }), limit);

  for (const step of ['object.write#1', 'object.durable#1', 'run.logs_kept', 'snapshot.taken', 'snapshot.defined', 'run.disk_defined', 'object.durable#3', 'run.disk_kept', 'sandbox.gone', 'run.end_durable', 'run.over']) {
    test(`in the midst of a stop, at ${step}`, limit, async (t) => {
      let stopped;
      const { box, mine, sessions, snapshots } = await killed(t, { what: 'stop', step }, async (box) => {
        stopped = await server.persistently(() => box.stop());
      });
      assert.equal(stopped.status, 'stopped');
      assert.deepEqual(snapshots.map((each) => each.id), [stopped.snapshot.id]);
      assert.deepEqual(sessions.map((each) => each.status), ['stopped']);
      assert.equal((await Sandbox.get({ ...mine, name: 'wanted' })).currentSnapshotId, stopped.snapshot.id);
      assert.equal(await run(box, 'cat file'), '1\n');
    });
  }

  for (const step of ['object.write#1', 'object.durable#1', 'run.begins', 'object.durable#2', 'sandbox.made', 'sandbox.named', 'object.durable#4']) {
    test(`in the midst of a resume, at ${step}`, limit, async (t) => {
      const { box, sessions } = await killed(t, { what: 'resume', step, prepare: (box) => box.stop() }, async (box) => {
        assert.equal(await run(box, 'cat file'), '1\n');
      });
      assert.equal(sessions[0].status, 'running');
      assert.equal(box.currentSession().sessionId, sessions[0].id);
      assert.ok(sessions.length <= 3, 'at most one session was lost');
    });
  }

  for (const step of ['run.logs_kept', 'snapshot.taken', 'snapshot.defined', 'run.disk_defined', 'run.disk_kept', 'run.over']) {
    test(`in the midst of a snapshot, at ${step}`, limit, async (t) => {
      let snapshot;
      const { box, mine, snapshots } = await killed(t, { what: 'snapshot', step }, async (box) => {
        snapshot = await server.persistently(() => box.snapshot());
      });
      assert.equal(snapshot.status, 'created');
      assert.equal(snapshots[0].id, snapshot.snapshotId);
      assert.equal((await Sandbox.get({ ...mine, name: 'wanted' })).currentSnapshotId, snapshot.snapshotId);
      assert.equal(await run(box, 'cat file'), '1\n');
    });
  }

  for (const step of ['object.write#1', 'object.durable#1', 'object.durable#2', 'sandbox.made', 'object.durable#4']) {
    test(`in the midst of a fork, at ${step}`, limit, async (t) => {
      await killed(t, { what: 'fork', step, prepare: (box) => box.stop() }, async (box, mine) => {
        const fork = await made(() => Sandbox.fork({ ...mine, sourceSandbox: 'wanted', name: 'forked' }), mine, 'forked');
        assert.equal(await run(fork, 'cat file'), '1\n');
        await fork.stop();
      });
    });
  }

  for (const step of ['object.write#1', 'object.durable#1', 'snapshot.marked_deleted', 'snapshot.dropped']) {
    test(`in the midst of a deletion, at ${step}`, limit, async () => {
      await server.start();
      const mine = { ...scope, projectId: `prj_delete_${step.replace(/\W/g, '_')}` };
      const box = await Sandbox.create({ ...mine, name: 'wanted', timeout: 600_000 });
      await box.stop();
      await server.end('SIGTERM');
      const kills = server.kills;
      await server.start(step);
      await server.persistently(() => box.delete({ deleteOrphanSnapshots: true })).catch((why) => { assert.equal(why.response?.status, 404, why.message); });
      assert.equal(server.kills, kills + 1, 'the server was not killed');
      // The sandbox may have gone with the first request, before its snapshot: that is a list away.
      for (const { id } of (await Snapshot.list(mine)).snapshots) await (await Snapshot.get({ ...mine, snapshotId: id })).delete();
      assert.deepEqual((await Sandbox.list(mine)).sandboxes, []);
      assert.deepEqual((await Snapshot.list(mine)).snapshots, []);
    });
  }

  for (const step of ['snapshot.defined', 'snapshot.marked_deleted', 'snapshot.dropped']) {
    test(`while older snapshots make room, at ${step}`, limit, async (t) => {
      const { box, mine } = await killed(t, { what: 'room', step, prepare: async (box) => { await box.update({ keepLastSnapshots: { count: 1 } }); await box.snapshot(); } }, async (box) => {
        await run(box, 'echo 2 > file');
        await server.persistently(() => box.stop());
      });
      assert.equal(await run(box, 'cat file'), '2\n');
      // What a server that was ended has left, the next snapshot takes along.
      const { snapshotId } = await box.snapshot();
      const left = async () => (await Snapshot.list({ ...mine })).snapshots.map((each) => each.id);
      await eventually(async () => (await left()).length === 1);
      assert.deepEqual(await left(), [snapshotId]);
    });
  }

  // Of everything that runs nothing is left: what was acknowledged is there, and what was not may be.
  const afterTwo = async (box) => { await box.stop(); await run(box, 'echo 2 > file'); };
  const lost = {
    stop: {
      steps: ['object.write#1', 'run.logs_kept', 'snapshot.taken', 'snapshot.defined', 'run.disk_defined', 'run.disk_kept', 'sandbox.gone', 'run.over'],
      prepare: afterTwo,
      work: async (box) => (await box.stop()).snapshot !== undefined,
    },
    // After the loss the SDK begins a session for it.
    snapshot: { steps: ['snapshot.taken', 'snapshot.defined', 'run.disk_kept', 'run.over'], prepare: afterTwo, work: (box) => box.snapshot().then(() => false) },
    resume: { steps: ['object.write#1', 'run.begins', 'sandbox.made', 'object.durable#4'], prepare: (box) => box.stop(), work: (box) => run(box, 'echo 2 > file').then(() => false) },
    fork: {
      steps: ['object.write#1', 'sandbox.made', 'object.durable#4'],
      prepare: (box) => box.stop(),
      work: async (box, mine) => {
        const fork = await made(() => Sandbox.fork({ ...mine, sourceSandbox: 'wanted', name: 'forked' }), mine, 'forked');
        assert.equal(await run(fork, 'cat file'), '1\n');
        await fork.stop();
        return false;
      },
    },
    room: {
      steps: ['snapshot.defined', 'snapshot.marked_deleted', 'snapshot.dropped'],
      prepare: async (box) => { await box.update({ keepLastSnapshots: { count: 1 } }); await afterTwo(box); },
      work: async (box) => (await box.stop()).snapshot !== undefined,
    },
  };
  for (const dies of ['spawner', 'all'])
    for (const [what, { steps, prepare, work }] of Object.entries(lost))
      for (const step of steps.filter((_, at) => dies === 'all' || at % 2 === 0))
        test(`${dies === 'all' ? 'all of the node' : 'the spawner'} is lost in the midst of a ${what}, at ${step}`, limit, async (t) => {
          let isKept = false;
          const { box } = await killed(t, { what: `${dies}_${what}`, step, prepare, dies }, async (...words) => {
            isKept = await server.persistently(() => work(...words)).catch((why) => { assert.ok(why.response, why.message); return false; });
          });
          assert.match(await run(box, 'cat file'), isKept ? /^2\n$/ : /^[12]\n$/);
          assert.equal((await box.stop()).status, 'stopped');
          assert.match(await run(box, 'cat file'), isKept ? /^2\n$/ : /^[12]\n$/);
        });
});
