// Interactive terminals of the Vercel Sandbox service: the SDK, unmodified, asks for them, and a WebSocket speaks as the vendor's
// command line does. INSULA_PROGRAM is the server, INSULA_URL says where it is to be. Node.js is started with insula-vercel.mjs.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';

import { Sandbox } from '@vercel/sandbox';
import { WebSocket } from 'ws';

import { KillableServer } from './killable_server.mjs';

const { INSULA_PROGRAM: program, INSULA_URL: url } = process.env;
assert.ok(program && url, 'INSULA_PROGRAM or INSULA_URL is not set');

const key = 'key-of-this-test';
const limit = { timeout: 180_000 };
const scope = { token: key, teamId: 'team_test', projectId: 'prj_test' };

let server;

/** One client at a terminal. */
class Terminal {
  #bytes = [];
  #changed = () => {};

  constructor({ url: at, token }) {
    this.socket = new WebSocket(`${at}?token=${token}`);
    this.opened = once(this.socket, 'open');
    this.opened.catch(() => {});
    this.texts = [];
    this.socket.on('message', (data, isBinary) => {
      if (isBinary) this.#bytes.push(data);
      else this.texts.push(JSON.parse(data));
      this.#changed();
    });
    /** The code of the close, and how the program has ended. */
    this.ended = once(this.socket, 'close').then(([code]) => { this.closed = true; this.#changed(); return { code, told: this.texts }; });
    this.ended.catch(() => {});
  }

  get bytes() { return Buffer.concat(this.#bytes); }
  get printed() { return this.bytes.toString(); }

  async start(command, args = [], more = {}) {
    await this.opened;
    this.tell({ type: 'start', command, args, env: [], cols: 80, rows: 24, ...more });
    return this;
  }
  tell(frame) { this.socket.send(JSON.stringify(frame)); }
  type(text) { this.socket.send(Buffer.from(text)); }

  /** What has been printed, once `text` is in it. */
  async until(text) {
    while (!this.printed.includes(text)) {
      assert.ok(!this.closed, `it has ended without ${text}: ${this.printed}`);
      await new Promise((resume) => { this.#changed = resume; });
    }
    return this.printed;
  }
  /** How it ends: the exit code, the code of the close, and what has been printed. */
  async end() {
    const { code, told } = await this.ended;
    assert.equal(told.length, 1, JSON.stringify(told));
    assert.equal(told[0].type, 'exit');
    return { exit: told[0].code, code, printed: this.printed };
  }
}

const terminalOf = async (box) => new Terminal(await box.openInteractive());
const started = async (box, command, args, more) => (await terminalOf(box)).start(command, args, more);
/** The status with which its handshake is refused. */
async function refusal(invitation) {
  const socket = new WebSocket(`${invitation.url}?token=${invitation.token}`);
  const [, answer] = await once(socket, 'unexpected-response');
  const said = await new Response(answer).json();
  assert.equal(typeof said.error.message, 'string');
  return answer.statusCode;
}
const make = (more = {}) => Sandbox.create({ ...scope, timeout: 600_000, persistent: false, ...more });
async function run(box, script) {
  const done = await server.persistently(() => box.runCommand('sh', ['-c', script]));
  assert.equal(done.exitCode, 0, await done.stderr());
  return done.stdout();
}
const memory = async () => Number(/VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${server.pid}/status`, 'utf8'))[1]) / 1024;
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
/** Says `up`, and what becomes of it when it is hung up. */
const untilHangUp = (file) => `trap 'echo hup > ${file}; exit 0' HUP; echo up; while :; do sleep 1; done`;
const isHungUp = async (box, file) => assert.equal(await run(box, `until [ -s ${file} ]; do sleep 0.05; done; cat ${file}`), 'hup\n');

describe('terminals', () => {
  let box;
  before(async () => {
    server = new KillableServer({ program, url, key, state: await mkdtemp('/var/tmp/insula-terminals-') });
    await server.start();
    box = await make({ env: { OF_SANDBOX: 'sandbox', OF_BOTH: 'sandbox' } });
  }, limit);
  after(async () => {
    await server.end();
    await rm(server.state, { recursive: true, force: true });
  }, limit);

  test('V092 a terminal is where the SDK is told, and the command line finds the server', limit, async () => {
    const invitation = await box.openInteractive();
    const at = new URL(invitation.url);
    assert.equal(at.protocol, 'ws:');
    assert.equal(at.host, new URL(url).host);
    assert.equal(at.search, '');
    assert.equal((await fetch(`https://${at.hostname}/health`)).status, 200);
    assert.ok(box.interactivePort > 0);
  });

  test('what is typed comes to the program, and what it prints to the client, until its end', limit, async () => {
    const one = await started(box, 'sh', ['-c', 'stty size; id -un; pwd; echo $OF_SANDBOX $OF_BOTH $OF_CLIENT $TERM; read line; echo got $line; exit 7'],
      { env: ['OF_BOTH=client', 'OF_CLIENT=a=b', 'TERM=vt100'], cols: 100, rows: 30, cwd: '/tmp' });
    await one.until('vt100');
    one.type('hello\n');
    const end = await one.end();
    assert.deepEqual(end.printed.split('\r\n'), ['30 100', 'vercel-sandbox', '/tmp', 'sandbox client a=b vt100', 'hello', 'got hello', '']);
    assert.deepEqual([end.exit, end.code], [7, 1000]);
  });

  test('a terminal has a usual size and a usual directory, and follows its client’s size', limit, async () => {
    const one = await terminalOf(box);
    await one.opened;
    one.tell({ type: 'start', command: 'sh', args: ['-c', 'stty size; pwd; echo $TERM; read line; stty size'] });
    await one.until('xterm-256color');
    one.tell({ type: 'resize', cols: 132, rows: 50 });
    one.type('\n');
    const end = await one.end();
    assert.deepEqual(end.printed.split('\r\n'), ['24 80', '/vercel/sandbox', 'xterm-256color', '', '50 132', '']);
  });

  test('a shell has job control, and Ctrl-C reaches what runs in it', limit, async () => {
    const one = await started(box, 'bash', ['--norc', '--noprofile', '-i'], { env: ['PS1=> '] });
    await one.until('> ');
    one.type('sleep 1000; echo "code $?"\n');
    await one.until('sleep 1000');
    // It is in the foreground once it runs.
    await run(box, 'until pgrep -x sleep > /dev/null; do sleep 0.05; done');
    one.type('\x03');
    one.type('echo "code $?."\n');
    assert.match(await one.until('code 130.'), /\^C/);
    one.type('exit 3\n');
    assert.equal((await one.end()).exit, 3);
  });

  test('sudo works there', limit, async () => {
    const end = await (await started(box, 'sudo', ['sh', '-c', 'id -u; echo $OF_CLIENT; tty; exit 4'], { env: ['OF_CLIENT=kept'] })).end();
    assert.match(end.printed, /^0\r\nkept\r\n\/dev\/pts\/\d+\r\n$/);
    assert.equal(end.exit, 4);
  });

  test('a program that a signal ends, or that cannot run, has the code that shells give it', limit, async () => {
    for (const [command, args, more, exit, sentence] of [
      ['sh', ['-c', 'kill -9 $$'], {}, 137, /^$/],
      ['no-such-program', [], {}, 127, /^insula: running the program.*No such file or directory\r\n$/],
      ['/etc/passwd', [], {}, 126, /^insula: running the program.*Permission denied\r\n$/],
      ['sh', [], { cwd: '/no/such/directory' }, 126, /^insula: entering the working directory.*\r\n$/],
      ['echo', ['x'.repeat(150_000)], {}, 126, /^insula: .*\r\n$/],
    ]) {
      const end = await (await started(box, command, args, more)).end();
      assert.deepEqual([end.exit, end.code], [exit, 1000], command);
      assert.match(end.printed, sentence);
    }
  });

  test('a first frame that starts nothing ends the connection, with a code', limit, async () => {
    for (const frame of ['{', '[]', '{"type":"resize","cols":1,"rows":1}', '{"type":"start"}', `{"type":"start","command":"${'x'.repeat(2_000_000)}"}`, Buffer.from('ls\n')]) {
      const one = await terminalOf(box);
      await one.opened;
      one.socket.send(frame);
      const end = await one.end();
      assert.deepEqual([end.exit, end.code], [1, 1008]);
      assert.match(end.printed, /^insula: .*\r\n$/);
    }
    const huge = await terminalOf(box);
    await huge.opened;
    huge.socket.send('x'.repeat(5_000_000));
    assert.ok([1009, 1006].includes((await huge.ended).code)); // What it still sends may be cut off.
  });

  test('a token is good for one connection to its session', limit, async () => {
    const other = await make({ name: 'other', persistent: true });
    const [mine, theirs] = [await box.openInteractive(), await other.openInteractive()];
    assert.equal(await refusal({ url: theirs.url, token: mine.token }), 401);
    assert.equal(await refusal({ url: mine.url, token: `${mine.token}x` }), 401);
    assert.equal(await refusal({ url: mine.url, token: '' }), 401);
    const one = await new Terminal(mine).start('cat');
    assert.equal(await refusal(mine), 401);
    one.type('\x04');
    assert.equal((await one.end()).exit, 0);
    assert.equal(await refusal(mine), 401);
    await other.stop();
    assert.equal(await refusal(theirs), 410);
    const next = await other.openInteractive(); // It resumes the sandbox.
    assert.notEqual(next.url, theirs.url);
    assert.equal(await refusal({ url: next.url, token: theirs.token }), 401);
    const again = await new Terminal(next).start('sh', ['-c', 'echo first; exit 5']);
    assert.deepEqual(await again.end(), { exit: 5, code: 1000, printed: 'first\r\n' });
    await other.delete();
  });

  test('a terminal that its client leaves is hung up', limit, async () => {
    const lost = await started(box, 'sh', ['-c', untilHangUp('/tmp/lost')]);
    await lost.until('up');
    lost.socket.terminate();
    await isHungUp(box, '/tmp/lost');
    const closed = await started(box, 'sh', ['-c', untilHangUp('/tmp/closed')]);
    await closed.until('up');
    closed.socket.close();
    await isHungUp(box, '/tmp/closed');
    const stays = await started(box, 'sh', ['-c', 'trap "" HUP; echo $$ > /tmp/stays; echo up; while :; do sleep 1; done']);
    await stays.until('up');
    stays.socket.terminate();
    await run(box, 'while kill -0 $(cat /tmp/stays) 2> /dev/null; do sleep 0.05; done');
  });

  test('a session that ends tells its terminals so', limit, async () => {
    const stopped = await make();
    const ends = await Promise.all([1, 2].map(() => started(stopped, 'sh', ['-c', 'echo up; exec sleep 1000'])));
    const waits = await terminalOf(stopped);
    await waits.opened;
    await Promise.all(ends.map((each) => each.until('up')));
    await stopped.stop();
    waits.tell({ type: 'start', command: 'sh' });
    for (const each of [...ends, waits]) {
      const end = await each.end();
      assert.deepEqual([end.exit, end.code], [1, 1001], end.printed);
    }
    const short = await make({ timeout: 20_000 });
    const late = await started(short, 'sh', ['-c', 'echo up; exec sleep 1000']);
    await late.until('up');
    assert.equal((await late.end()).exit, 1);
  });

  test('output waits for its client, and all of it comes', limit, async () => {
    const expected = (await run(box, 'head -c 20000000 /dev/urandom > /tmp/data; sha256sum < /tmp/data')).slice(0, 64);
    const one = await started(box, 'sh', ['-c', 'stty raw -echo; cat /tmp/data; touch /tmp/all; exit 9']);
    one.socket.pause();
    // It goes on until nobody takes more, and stands still then.
    const position = async () => Number(await run(box, 'p=$(pgrep -x cat) && sed -n "s/^pos:\\s*//p" /proc/$p/fdinfo/3 || echo 0'));
    let at = 0;
    for (let same = 0; same < 20; ) {
      const next = await position();
      same = next > 0 && next === at ? same + 1 : 0;
      at = next;
    }
    assert.ok(at < 15_000_000, `${at} bytes were read`);
    assert.equal(await run(box, 'ls /tmp/all 2>&1 || true'), "ls: cannot access '/tmp/all': No such file or directory\n");
    one.socket.resume();
    const end = await one.end();
    assert.equal(end.exit, 9);
    assert.equal(one.bytes.length, 20_000_000);
    assert.equal(sha256(one.bytes), expected);
  });

  test('what is typed waits for its program, and all of it comes', limit, async () => {
    const typed = Buffer.alloc(20_000_000, 'some words that are typed, and typed again\n');
    const reads = await started(box, 'sh', ['-c', 'stty raw -echo; echo up; head -c 20000000 | sha256sum']);
    await reads.until('up');
    for (let from = 0; from < typed.length; from += 500_000) reads.socket.send(typed.subarray(from, from + 500_000));
    assert.match((await reads.end()).printed, new RegExp(sha256(typed)));

    const deaf = await started(box, 'sh', ['-c', 'stty raw -echo; echo up; exec sleep 1000']);
    await deaf.until('up');
    const before = await memory();
    for (let i = 0; i < 100; ++i) deaf.socket.send(Buffer.alloc(1_000_000, 'x'));
    for (let same = 0, at = 0; same < 20; same = at === deaf.socket.bufferedAmount ? same + 1 : 0, at = deaf.socket.bufferedAmount) await run(box, 'true');
    assert.ok(deaf.socket.bufferedAmount > 70_000_000, `${deaf.socket.bufferedAmount} bytes wait with the client`);
    assert.ok((await memory()) - before < 48, `the server has grown by ${(await memory()) - before} MiB`);
    deaf.socket.terminate();
  });

  test('fifty terminals at once, and a sandbox has so many and no more', limit, async () => {
    const boxes = [await make(), await make()];
    const all = await Promise.all(Array.from({ length: 50 }, (_, i) => started(boxes[i % 2], 'sh', ['-c', 'read line; echo got $line; exit 5'])));
    all.forEach((each, i) => { each.type(`${i}\n`); });
    await Promise.all(all.map(async (each, i) => {
      const end = await each.end();
      assert.deepEqual([end.exit, end.printed], [5, `${i}\r\ngot ${i}\r\n`]);
    }));
    const many = await Promise.all(Array.from({ length: 48 }, () => started(boxes[0], 'sh', ['-c', 'echo up; read line'])));
    await Promise.all(many.map((each) => each.until('up')));
    const refused = await (await started(boxes[0], 'sh')).end();
    assert.deepEqual([refused.exit, refused.code], [1, 1013]);
    assert.match(refused.printed, /^insula: the sandbox has 48 terminals/);
    many[0].socket.terminate(); // It makes room.
    let end;
    do end = await (await started(boxes[0], 'sh', ['-c', 'exit 6'])).end(); while (end.code === 1013);
    assert.equal(end.exit, 6);
    await Promise.all(boxes.map((each) => each.stop()));
  });

  test('a server that ends says so, and the next one hangs up', limit, async () => {
    const one = await started(box, 'sh', ['-c', untilHangUp('/tmp/ended')]);
    await one.until('up');
    const unused = await box.openInteractive();
    await server.end('SIGTERM');
    const end = await one.end();
    assert.deepEqual([end.exit, end.code], [1, 1001]);
    await server.start();
    await isHungUp(box, '/tmp/ended');
    assert.equal(await refusal(unused), 401); // It may have been used.
    const killed = await started(box, 'sh', ['-c', untilHangUp('/tmp/killed')]);
    await killed.until('up');
    await server.kill();
    assert.equal((await killed.ended).code, 1006);
    await isHungUp(box, '/tmp/killed');
    assert.equal((await (await started(box, 'sh', ['-c', 'exit 8'])).end()).exit, 8);
  });
});
