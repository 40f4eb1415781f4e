// The logs of commands whose session is over, as the SDK of the Vercel Sandbox service reads them, and readers of all kinds:
// while the server is restarted, or killed as by kill -9 at each step of a session's end. INSULA_PROGRAM is the server,
// INSULA_URL says where it is to be. Node.js is started with insula-vercel.mjs.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

import { Sandbox } from '@vercel/sandbox';

import { KillableServer } from './killable_server.mjs';

const { INSULA_PROGRAM: program, INSULA_URL: url } = process.env;
assert.ok(program && url, 'INSULA_PROGRAM or INSULA_URL is not set');

const key = 'key-of-this-test';
const limit = { timeout: 180_000 };
const scope = { token: key, teamId: 'team_test', projectId: 'prj_test' };

let server;
async function prepare(config) {
  const state = await mkdtemp('/var/tmp/insula-logs-');
  await writeFile(join(state, 'config.yaml'), config);
  server = new KillableServer({ program, url, key, state, config: join(state, 'config.yaml') });
}
async function clear() {
  await server.end();
  await rm(server.state, { recursive: true, force: true });
}
const again = (work) => server.persistently(work, 20);

const headers = { authorization: `Bearer ${key}` };
const commandsOf = (session) => `${url}/v2/sandboxes/sessions/${session}/cmd`;
async function list(session) {
  const answer = await again(() => fetch(commandsOf(session), { headers }));
  assert.equal(answer.status, 200, await answer.clone().text());
  return (await answer.json()).commands;
}
/** What its log has, with the status of the answer and its last line. */
async function logOf(session, command) {
  const answer = await again(() => fetch(`${commandsOf(session)}/${command}/logs`, { headers }));
  const text = await answer.text();
  if (answer.status !== 200) return { status: answer.status, code: JSON.parse(text).error.code };
  const lines = text.split('\n').filter(Boolean).map((line) => JSON.parse(line));
  const error = lines.find((line) => line.stream === 'error');
  return { status: 200, error, text: lines.filter((line) => line !== error).map((line) => line.data).join('') };
}
const keptFiles = async () => {
  const logs = join(server.state, 'logs');
  const owners = await readdir(logs);
  return (await Promise.all(owners.map((each) => readdir(join(logs, each)).catch(() => [])))).flat();
};
const noneKept = async () => { assert.deepEqual(await keptFiles(), [], 'logs of a sandbox that is deleted are left'); };
const memoryOf = async () => Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${server.pid}/status`, 'utf8'))[1]) / 1024;

/** A sandbox with a command that has ended, and one that says something and goes on. */
async function made(name, options = {}) {
  const box = await Sandbox.create({ ...scope, name, timeout: 600_000, ...options });
  const session = box.currentSession().sessionId;
  const ended = await box.runCommand({ cmd: 'sh', args: ['-c', 'seq 20000; echo end >&2; exit 3'], detached: true });
  assert.equal((await ended.wait()).exitCode, 3);
  const cut = await box.runCommand({ cmd: 'sh', args: ['-c', 'trap "" TERM; printf "a part of "; echo ready; sleep 987'], detached: true });
  for await (const each of cut.logs()) if (each.data.includes('ready')) break;
  return { box, session, ended: ended.cmdId, cut: cut.cmdId };
}
const numbers = Array.from({ length: 20_000 }, (_, i) => `${i + 1}\n`).join('');

async function isReadable({ session, ended, cut }) {
  const commands = await list(session);
  assert.deepEqual(commands.map((each) => [each.id, each.exitCode, each.sessionId]), [[cut, null, session], [ended, 3, session]]);
  assert.ok(commands[1].durationMs >= 0);
  const whole = await logOf(session, ended);
  assert.equal(whole.status, 200);
  assert.equal(whole.error, undefined);
  assert.equal(whole.text, `${numbers}end\n`);
  assert.deepEqual(await logOf(session, cut), { status: 200, error: undefined, text: 'a part of ready\n' });
}

describe('logs of sessions that are over', () => {
  before(async () => {
    await prepare('sandbox: {limits: {log: 256MiB}}\n');
    await server.start();
  }, limit);
  after(clear, limit);

  test('V069 V147 V149 V150 V151 V152 read after the stop, after restarts, and until the sandbox is deleted', limit, async () => {
    const all = await made('after-stop');
    const { box, session, ended, cut } = all;
    assert.deepEqual((await list(session)).map((each) => each.id), [cut, ended]);
    await box.stop();
    await isReadable(all);
    // By the SDK's own objects, and by those of a program that comes later.
    const later = await Sandbox.get({ ...scope, name: 'after-stop' });
    const found = await later.getCommand(ended);
    assert.equal(found.exitCode, 3);
    assert.deepEqual([await found.stdout(), await found.stderr()], [numbers, 'end\n']);
    assert.equal((await found.output('both')).length, numbers.length + 4);
    assert.equal((await found.wait()).exitCode, 3);
    const other = await later.getCommand(cut);
    assert.equal(other.exitCode, null);
    assert.equal(await other.stdout(), 'a part of ready\n');
    for (const signal of ['SIGTERM', 'SIGINT']) {
      await server.end(signal);
      await server.start();
      await isReadable(all);
    }
    await server.kill();
    await isReadable(all);
    await box.delete();
    assert.equal((await fetch(commandsOf(session), { headers })).status, 404);
    await noneKept();
  });

  test('V148 V190 a session that expires in the midst of a log', limit, async () => {
    const box = await Sandbox.create({ ...scope, timeout: 4000 });
    const session = box.currentSession().sessionId;
    const command = await box.runCommand({ cmd: 'sh', args: ['-c', 'trap "" TERM; i=0; while :; do echo $i; i=$((i + 1)); done'], detached: true });
    const followed = await logOf(session, command.cmdId);
    assert.equal(followed.status, 200);
    assert.equal(followed.error?.data.code, 'sandbox_stopped');
    const kept = await logOf(session, command.cmdId);
    assert.equal(kept.status, 200);
    assert.equal(kept.error, undefined);
    // All lines, in their order; the last one may have been cut.
    assert.ok(kept.text.startsWith(followed.text), 'what was followed is the beginning of what is kept');
    const lines = kept.text.split('\n');
    assert.ok(lines.length > 1000);
    lines.slice(0, -1).forEach((line, i) => { if (line !== String(i)) assert.fail(`line ${i} is ${line}`); });
    await box.delete();
  });

  test('V069 V078 V147 two hundred commands on their own', limit, async () => {
    const box = await Sandbox.create({ ...scope, timeout: 600_000 });
    const session = box.currentSession().sessionId;
    const made = await Promise.all(Array.from({ length: 200 }, (_, i) =>
      box.runCommand({ cmd: 'sh', args: ['-c', `echo number ${i}; exec sleep 987`], detached: true })));
    await Promise.all(made.map(async (each) => { for await (const line of each.logs()) if (line.data.includes('\n')) break; }));
    await box.stop();
    const commands = await list(session);
    assert.deepEqual(new Set(commands.map((each) => each.id)), new Set(made.map((each) => each.cmdId)));
    assert.ok(commands.every((each, i) => i === 0 || each.startedAt <= commands[i - 1].startedAt));
    // By the signal, or with the session, whichever is first.
    assert.ok(commands.every((each) => [143, null].includes(each.exitCode)), JSON.stringify(commands.map((each) => each.exitCode)));
    const texts = await Promise.all(made.map((each) => logOf(session, each.cmdId)));
    texts.forEach((each, i) => { assert.deepEqual(each, { status: 200, error: undefined, text: `number ${i}\n` }); });
    await box.delete();
    await noneKept();
  });

  test('V147 readers that stand still hold no more than their own buffers, and nobody up', limit, async () => {
    const box = await Sandbox.create({ ...scope, timeout: 600_000 });
    const session = box.currentSession().sessionId;
    // Without a reader that keeps up the log has the end of that, as much as the disk could be charged for in that time.
    const command = await box.runCommand({ cmd: 'sh', args: ['-c', "head -c 64M /dev/zero | tr '\\0' x"], detached: true });
    const path = `${commandsOf(session)}/${command.cmdId}/logs`;
    const opened = async () => {
      const asked = request(path, { headers });
      asked.end();
      const [answer] = await once(asked, 'response'); // Of which nothing is read.
      return { asked, answer };
    };
    assert.equal((await command.wait()).exitCode, 0); // It was not held up by anybody.
    const lengths = async () => {
      const answer = await fetch(path, { headers });
      let bytes = 0;
      for await (const some of answer.body) bytes += some.length;
      return bytes;
    };
    const whole = await lengths();
    assert.ok(whole >= 12 << 20, `${whole} bytes`);
    const before = await memoryOf();
    for (const stopped of [false, true]) {
      if (stopped) await box.stop();
      const still = await Promise.all(Array.from({ length: 40 }, opened));
      assert.equal(await lengths(), whole);
      const more = await memoryOf() - before;
      assert.ok(more < 40 * 4, `${more} MiB more for 40 readers that stand still`);
      for (const { asked } of still) asked.destroy();
    }
    await box.delete();
  });
});

describe('a session whose server is killed at its end', () => {
  before(() => prepare('log: {level: info}\n'), limit);
  after(clear, limit);

  // In the order of an end; the log of each of the two commands gets its name.
  for (const step of ['logs.linked', 'logs.linked#2', 'run.logs_kept', 'sandbox.gone', 'run.end_durable', 'run.over']) {
    test(`V094 V147 at ${step}`, limit, async () => {
      const before = server.kills;
      await server.end();
      await server.start(step);
      const all = await made(`killed-${step.replace(/\W/g, '-')}`);
      await again(() => all.box.stop());
      assert.equal(server.kills, before + 1, 'the server was not killed');
      await isReadable(all);
      const { sessions } = await again(() => all.box.listSessions());
      assert.match(sessions[0].status, /^(stopped|aborted)$/);
      // Nobody has to ask for the end that the server before had begun.
      await server.kill();
      await isReadable(all);
      await again(() => all.box.delete());
      await noneKept();
    });
  }
});
