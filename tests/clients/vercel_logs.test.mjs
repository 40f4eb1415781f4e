// The logs of commands whose session is over, as the SDK of the Vercel Sandbox service reads them, and readers of all kinds:
// while the server is restarted, or killed as by kill -9 at each step of a session's end. INSULA_PROGRAM is the server,
// INSULA_URL says where it is to be. Node.js is started with insula-vercel.mjs.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

import { Sandbox } from '@vercel/sandbox';

const { INSULA_PROGRAM: program, INSULA_URL: url } = process.env;
assert.ok(program && url, 'INSULA_PROGRAM or INSULA_URL is not set');

const key = 'key-of-this-test';
const limit = { timeout: 180_000 };
const scope = { token: key, teamId: 'team_test', projectId: 'prj_test' };

let state, config, server, kills = 0;

/** A server on the state of the one before. It kills itself at the step, if one is given, and there is a new one at once. */
function start(step) {
  const words = ['--pdeathsig', 'INT', program, 'serve', '--listen', new URL(url).host, '--state', state, '--config', config];
  const made = spawn('setpriv', words, { env: { ...process.env, SANDBOX_API_KEY: key, INSULA_FAILPOINT: step ?? '' }, stdio: ['ignore', 'pipe', 'pipe'] });
  const mine = { process: made, ended: once(made, 'exit'), said: '' };
  made.stderr.on('data', (some) => { mine.said = (mine.said + some).slice(-20_000); });
  mine.ready = new Promise((resume, fail) => {
    createInterface({ input: made.stdout }).on('line', (line) => { if (line.startsWith('insula is ready on ')) resume(); });
    made.on('exit', () => { fail(new Error(`the server has ended: ${mine.said}`)); });
  });
  mine.ready.catch(() => {});
  made.on('exit', (_, signal) => {
    if (signal !== 'SIGKILL' || mine.stopping) return;
    ++kills;
    start();
  });
  server = mine;
  return mine.ready;
}

/** By SIGTERM what runs goes on with the next server; after SIGINT nothing is left. */
async function end(signal) {
  if (server.process.exitCode !== null || server.process.signalCode !== null) return;
  server.stopping = true;
  server.process.kill(signal);
  assert.deepEqual(await server.ended, [0, null], server.said);
  for (let attempt = 0; signal === 'SIGINT' && attempt < 300; ++attempt) {
    const all = await Promise.all((await readdir('/proc')).filter((each) => /^\d+$/.test(each))
      .map((each) => readFile(`/proc/${each}/cmdline`, 'utf8').catch(() => '')));
    if (!all.some((each) => each.includes(state))) return;
    await delay(100);
  }
  if (signal === 'SIGINT') assert.fail('a process of the server is left');
}

async function kill() {
  server.process.kill('SIGKILL');
  await server.ended;
  await server.ready;
}

/** As programs do, until the server of the moment answers. */
async function again(work) {
  for (let attempt = 0; ; ++attempt) {
    try {
      return await work();
    } catch (why) {
      if (attempt === 20 || why.response) throw why;
      await server.ready.catch(() => {});
      await delay(50);
    }
  }
}

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
  const logs = join(state, 'logs');
  const owners = await readdir(logs);
  return (await Promise.all(owners.map((each) => readdir(join(logs, each))))).flat();
};
const memoryOf = async () => Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${server.process.pid}/status`, 'utf8'))[1]) / 1024;

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
    state = await mkdtemp('/var/tmp/insula-logs-');
    config = join(state, 'config.yaml');
    await writeFile(config, 'sandbox: {limits: {log: 256MiB}}\n');
    await start();
  }, limit);
  after(async () => {
    await end('SIGINT');
    await rm(state, { recursive: true, force: true });
  }, limit);

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
      await end(signal);
      await start();
      await isReadable(all);
    }
    await kill();
    await isReadable(all);
    await box.delete();
    assert.equal((await fetch(commandsOf(session), { headers })).status, 404);
    assert.deepEqual(await keptFiles(), []);
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
    assert.deepEqual(await keptFiles(), []);
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
  before(async () => {
    state = await mkdtemp('/var/tmp/insula-logs-');
    config = join(state, 'config.yaml');
    await writeFile(config, 'log: {level: info}\n');
  }, limit);
  after(async () => {
    await end('SIGINT');
    await rm(state, { recursive: true, force: true });
  }, limit);

  // In the order of an end; the log of each of the two commands gets its name.
  for (const step of ['logs.linked', 'logs.linked#2', 'run.logs_kept', 'sandbox.gone', 'run.end_durable', 'run.over']) {
    test(`V094 V147 at ${step}`, limit, async () => {
      const before = kills;
      if (server?.process.exitCode === null && server.process.signalCode === null) await end('SIGINT');
      await start(step);
      const all = await made(`killed-${step.replace(/\W/g, '-')}`);
      await again(() => all.box.stop());
      assert.equal(kills, before + 1, 'the server was not killed');
      await isReadable(all);
      const { sessions } = await again(() => all.box.listSessions());
      assert.match(sessions[0].status, /^(stopped|aborted)$/);
      // Nobody has to ask for the end that the server before had begun.
      await kill();
      await isReadable(all);
      await again(() => all.box.delete());
      assert.deepEqual(await keptFiles(), []);
    });
  }
});
