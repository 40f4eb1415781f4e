// Drives with the SDK of the Vercel Sandbox service, unmodified, while the server, its spawner or all of the node is killed as by
// kill -9 and started again: INSULA_PROGRAM is the server, INSULA_URL says where it is to be. Node.js is started with
// insula-vercel.mjs.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

import { Drive, Sandbox } from '@vercel/sandbox';

import { KillableServer } from './killable_server.mjs';

const { INSULA_PROGRAM: program, INSULA_URL: url } = process.env;
assert.ok(program && url, 'INSULA_PROGRAM or INSULA_URL is not set');

const key = 'key-of-this-test';
const limit = { timeout: 120_000 };
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

/** Also after an answer that says no: what was lost may have been the answer. */
const attempted = (work) => server.persistently(work).catch((why) => { assert.ok(why.response, why.message); return undefined; });

/** What comes to a step now and then only. */
const maySkip = new Set(['fork snapshot.defined']);

/** What each does of which a step is hit; true: what it wrote was acknowledged, and stays. */
const works = {
  stop: {
    steps: ['object.write#1', 'run.logs_kept', 'snapshot.taken', 'snapshot.defined', 'snapshot.kept', 'snapshot.stood_on', 'sandbox.gone', 'run.over'],
    work: async ({ box }) => (await attempted(() => box.stop()))?.status === 'stopped',
  },
  'new session': {
    steps: ['object.write#1', 'sandbox.drives_attached', 'sandbox.made', 'object.durable#4'],
    prepare: ({ box }) => box.stop(),
    work: async ({ box }) => { await attempted(() => box.runCommand('true')); return true; },
  },
  fork: {
    steps: ['object.write#1', 'snapshot.taken', 'snapshot.defined', 'sandbox.made', 'object.durable#4'],
    prepare: ({ box }) => box.stop(),
    work: async ({ mine, fork }) => {
      let answer = { status: 503 };
      await eventually(async () => { answer = await attempted(() => fork('copy')); return answer.status !== 503; });
      assert.ok([201, 409].includes(answer.status), `${answer.status} ${answer.said}`); // The first one may have made it.
      const reader = await server.persistently(() => Sandbox.create({ ...mine, timeout: 60_000, persistent: false, mounts: { '/copy': { drive: 'copy', mode: 'snapshot' } } }));
      assert.equal(await run(reader, 'cat /copy/file'), '2\n');
      await reader.delete();
      return true;
    },
  },
  deletion: {
    steps: ['object.destroy', 'object.destroyed', 'snapshot.dropped'],
    prepare: ({ box }) => box.stop(),
    work: async ({ mine, box }) => {
      await server.persistently(() => box.update({ mounts: {} }));
      const drive = await Drive.getOrCreate({ ...mine, name: 'wanted' });
      await server.persistently(() => drive.delete()).catch((why) => { assert.equal(why.response?.status, 404, why.message); });
      assert.deepEqual((await server.persistently(() => Drive.list(mine))).drives.filter((each) => each.name === 'wanted'), []);
      return undefined;
    },
  },
};

describe('drives whose server, spawner or node is killed', () => {
  before(async () => { server = new KillableServer({ program, url, key, state: await mkdtemp('/var/tmp/insula-killed-') }); }, limit);
  afterEach(() => server.end(), limit);
  after(() => rm(server.state, { recursive: true, force: true }), limit);

  for (const dies of ['server', 'spawner', 'all'])
    for (const [what, { steps, prepare = async () => {}, work }] of Object.entries(works))
      for (const step of steps.filter((_, at) => dies !== 'spawner' || at % 2 === 0))
        test(`${dies === 'all' ? 'all of the node' : `the ${dies}`} is lost in the midst of a ${what}, at ${step}`, limit, async (t) => {
          await server.start();
          const mine = { token: key, teamId: 'team_test', projectId: `prj_${dies}_${what}_${step}`.replace(/\W/g, '_') };
          const drive = await Drive.getOrCreate({ ...mine, name: 'wanted' });
          const box = await Sandbox.create({ ...mine, name: 'writer', timeout: 600_000, mounts: { '/data': drive } });
          await run(box, 'echo 1 > /data/file');
          await box.stop();
          await run(box, 'echo 2 > /data/file');
          const fork = async (name) => {
            const answer = await fetch(`${url}/v2/sandboxes/drives/wanted/fork?projectId=${mine.projectId}`, { method: 'POST', body: JSON.stringify({ name }), headers: { authorization: `Bearer ${key}` } });
            return { status: answer.status, said: await answer.text() };
          };
          await prepare({ box, mine, fork });
          await server.end('SIGTERM'); // What runs is the next server's.
          const kills = server.kills;
          await server.start(step, dies).catch(() => server.ready); // The step may be one of its own beginning.
          const isKept = await work({ box, mine, fork });
          await eventually(() => server.kills > kills); // It may end behind its answer.
          await server.ready;
          if (server.kills === kills && maySkip.has(`${what} ${step}`)) return t.skip(`${what} has not come to ${step}`);
          assert.equal(server.kills, kills + 1, 'nothing was killed');
          if (isKept === undefined) return;
          // The first sandbox lets it go, and then another one has it, alone.
          await attempted(() => box.stop());
          const next = await server.persistently(() => Sandbox.create({ ...mine, name: 'next', timeout: 600_000, mounts: { '/data': drive } }));
          assert.match(await run(next, 'cat /data/file'), isKept ? /^2\n$/ : /^[12]\n$/);
          await assert.rejects(Sandbox.create({ ...mine, name: 'third', timeout: 600_000, mounts: { '/data': drive } }), (why) => why.response?.status === 409);
          await run(next, 'echo 3 > /data/file');
          await next.stop();
          assert.equal(await run(box, 'cat /data/file'), '3\n');
        });
});
