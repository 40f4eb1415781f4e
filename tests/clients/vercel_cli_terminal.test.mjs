// The command line of the Vercel Sandbox service, unmodified, at terminals of its own: what is interactive of it. INSULA_URL says
// where the server is, INSULA_API_KEY with which key.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

const { INSULA_URL: url, INSULA_API_KEY: key } = process.env;
assert.ok(url && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 180_000 };
const command = new URL('node_modules/sandbox/bin/sandbox.mjs', import.meta.url).pathname;
const scope = ['--scope', 'team_cli', '--project', 'prj_terminal'];
const quoted = (words) => words.map((each) => `'${each.replaceAll("'", "'\\''")}'`).join(' ');
let home, around, count = 0;

before(async () => {
  home = await mkdtemp('/var/tmp/insula-cli-terminal-');
  await writeFile(join(home, 'insula-vercel.mjs'), await (await fetch(`${url}/insula-vercel.mjs`)).text());
  around = {
    PATH: process.env.PATH, HOME: home, TMPDIR: home, TERM: 'xterm', SHELL: '/bin/sh', LANG: 'C.UTF-8', INSULA_URL: url, VERCEL_AUTH_TOKEN: key,
    NODE_OPTIONS: `--import=${join(home, 'insula-vercel.mjs')}`, SANDBOX_SKIP_VERSION_CHECK: '1', VERCEL_SANDBOX_TELEMETRY_DISABLED: '1', NO_COLOR: '1',
  };
});
after(() => rm(home, { recursive: true, force: true }));

/** The command line at a terminal, which is 100 columns wide and 30 rows high. */
class Terminal {
  #raw = '';
  #changed = () => {};
  #ended;

  /** `input`: a file, in place of what is typed. */
  constructor(words, { input = '' } = {}) {
    this.notes = join(home, `terminal-${++count}`); // The name of its terminal, and the pid of the command line.
    const line = `stty cols 100 rows 30; echo "$(tty) $$" > '${this.notes}'; exec ${quoted([process.execPath, command, ...words])}${input && ` < '${input}'`}`;
    this.child = spawn('script', ['-qefc', line, '/dev/null'], { env: around, cwd: home, stdio: ['pipe', 'pipe', 'inherit'] });
    this.child.stdin.on('error', () => {});
    this.child.stdout.setEncoding('utf8').on('data', (some) => { this.#raw += some; this.#changed(); });
    this.#ended = once(this.child, 'close').then(([code]) => { this.closed = true; this.#changed(); return code; });
  }

  /** What it shows; Node.js leaves a terminal that is raw so that a line's end gets a second return. */
  get said() { return this.#raw.replaceAll('\r', ''); }
  /** What has been shown, once `text` is in it. */
  async until(text) {
    while (!this.said.includes(text)) {
      assert.ok(!this.closed, `it has ended without ${text}: ${this.said}`);
      await new Promise((resume) => { this.#changed = resume; });
    }
    return this.said;
  }
  type(text) { this.child.stdin.write(text); }
  async #note(which) { return (await readFile(this.notes, 'utf8')).trim().split(' ')[which]; }
  /** As a window does whose size changes. */
  async resize(cols, rows) { execFileSync('stty', ['-F', await this.#note(0), 'cols', String(cols), 'rows', String(rows)]); }
  async kill(signal) { process.kill(Number(await this.#note(1)), signal); }
  /** As a window does that is closed. */
  close() { this.child.kill('SIGKILL'); }
  async end() { return { code: await this.#ended, said: this.said }; }
}

const at = ([name, ...words], options) => new Terminal([name, ...scope, ...words], options);
/** A command in a sandbox, with no terminal, and what it has said. */
async function sandbox(name, ...words) {
  const child = spawn(process.execPath, [command, name, ...scope, ...words], { env: around, cwd: home, stdio: ['ignore', 'pipe', 'pipe'] });
  const said = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (some) => { said.out += some; });
  child.stderr.setEncoding('utf8').on('data', (some) => { said.err += some; });
  const [code] = await once(child, 'close');
  assert.equal(code, 0, `${name} ${words.join(' ')}: ${said.err}`);
  return said.out;
}
const run = (script) => sandbox('exec', 'main', 'sh', '-c', script);
const found = async (name) => {
  const answer = await fetch(`${url}/v2/sandboxes/${name}?teamId=team_cli&projectId=prj_terminal`, { headers: { authorization: `Bearer ${key}` } });
  return answer.status === 200 ? answer.json() : undefined;
};
const untilHangUp = (file) => `trap 'echo hup > ${file}; exit 0' HUP; echo it is up; while :; do sleep 0.1; done`;
const isHungUp = async (file) => assert.equal(await run(`until [ -s ${file} ]; do sleep 0.05; done; cat ${file}`), 'hup\n');

describe('the command line at a terminal', { concurrency: 1 }, () => {
  before(async () => { await sandbox('create', '--silent', '--name', 'main', '-e', 'GREETING=hello', '--timeout', '60m'); }, limit);
  after(async () => { await sandbox('rm', 'main').catch(() => {}); }, limit);

  test('exec -i has the output, what is typed, the environment, the directory and the exit code', limit, async () => {
    const one = at(['exec', '-i', '-e', 'X=1', '-w', '/tmp', 'main', 'sh', '-c', 'stty size; id -un; pwd; echo $TERM $GREETING $X; read line; echo "got $line."; exit 7']);
    await one.until('xterm-256color hello 1');
    one.type('ü and more\r');
    const { code, said } = await one.end();
    assert.match(said, /30 100\nvercel-sandbox\n\/tmp\nxterm-256color hello 1\nü and more\ngot ü and more\.\n/);
    assert.match(said, /connection to ▲ main closed\./);
    assert.equal(code, 7);
  });

  test('exec -i without a terminal for its input sends what its input has', limit, async () => {
    const input = join(home, 'input');
    await writeFile(input, 'echo is $((40 + 2))\nexit 6\n');
    const { code, said } = await at(['exec', '-i', 'main', 'sh'], { input }).end();
    assert.match(said, /is 42\n/);
    assert.equal(code, 6);
  });

  test('--sudo is root', limit, async () => {
    const { code, said } = await at(['exec', '--interactive', '--tty', '--sudo', 'main', 'sh', '-c', 'echo "uid $(id -u)"; exit 5']).end();
    assert.match(said, /uid 0\n/);
    assert.equal(code, 5);
  });

  test('a program that a signal ends, or that is not there, has the code of shells', limit, async () => {
    assert.equal((await at(['exec', '-i', 'main', 'sh', '-c', 'kill -9 $$']).end()).code, 137);
    const unknown = await at(['exec', '-i', 'main', 'no-such-program']).end();
    assert.match(unknown.said, /insula: .*No such file or directory/);
    assert.equal(unknown.code, 127);
  });

  test('connect is a shell, and Ctrl-C reaches what runs in it', limit, async () => {
    const one = at(['connect', 'main']);
    await one.until('/vercel/sandbox/');
    one.type('sleep 1000\r');
    await run('until pgrep -x sleep > /dev/null; do sleep 0.05; done');
    one.type('\x03');
    one.type('echo "code $?."; cd /tmp\r');
    await one.until('code 130.');
    await one.until('/tmp/');
    one.type('exit 3\r');
    assert.equal((await one.end()).code, 3);
  });

  test('Ctrl-D ends the shell', limit, async () => {
    const one = at(['connect', 'main']);
    await one.until('/vercel/sandbox/');
    one.type('\x04');
    assert.equal((await one.end()).code, 0);
  });

  test('a window whose size changes changes that of the program', limit, async () => {
    const one = at(['exec', '-i', 'main', 'sh', '-c', 'trap \'echo now $(stty size)\' WINCH; echo it is up; while :; do read line && exit 4; done']);
    await one.until('it is up\n');
    await one.resize(132, 50);
    await one.until('now 50 132');
    await one.resize(80, 24);
    await one.until('now 24 80');
    one.type('\r');
    assert.equal((await one.end()).code, 4);
  });

  test('all output comes, in its order', limit, async () => {
    const { code, said } = await at(['exec', '-i', 'main', 'sh', '-c', 'echo "it begins"; seq 100000; exit 9']).end();
    const from = said.indexOf('it begins\n') + 'it begins\n'.length;
    assert.ok(said.slice(from).startsWith(`${Array.from({ length: 100_000 }, (_, i) => i + 1).join('\n')}\n`));
    assert.equal(code, 9);
  });

  test('a command line that ends hangs up its program', limit, async () => {
    for (const [file, ends] of [['/tmp/killed', (one) => one.kill('SIGKILL')], ['/tmp/closed', (one) => one.close()]]) {
      const one = at(['exec', '-i', 'main', 'sh', '-c', untilHangUp(file)]);
      await one.until('it is up\n');
      await ends(one);
      await isHungUp(file);
      await one.end();
    }
  });

  test('a session that ends, ends its terminals', limit, async () => {
    await sandbox('create', '--silent', '--name', 'ending');
    const ends = [1, 2].map(() => at(['exec', '-i', 'ending', 'sh', '-c', 'echo it is up; exec sleep 1000']));
    for (const each of ends) await each.until('it is up\n');
    await sandbox('stop', 'ending');
    for (const each of ends) {
      const { code, said } = await each.end();
      assert.equal(code, 1, said);
      assert.match(said, /connection to ▲ ending closed\./);
    }
    // The next one begins another session, with the files.
    assert.equal((await found('ending')).session.status, 'stopped');
    const again = at(['connect', 'ending']);
    await again.until('/vercel/sandbox/');
    again.type('exit\r');
    assert.equal((await again.end()).code, 0);
    await sandbox('rm', 'ending');
  });

  test('a session has more time for as long as a terminal is there', limit, async () => {
    await sandbox('create', '--silent', '--name', 'short', '--timeout', '20s');
    const one = at(['exec', '-i', 'short', 'sh', '-c', 'echo it is up; read line; exit 8']);
    await one.until('it is up\n');
    const { session: { id } } = await found('short');
    let now;
    do {
      await delay(100);
      now = (await found('short')).session;
    } while (now.timeout === 20_000 && now.status === 'running');
    assert.deepEqual([now.id, now.status, now.timeout], [id, 'running', 320_000]);
    one.type('\r');
    assert.equal((await one.end()).code, 8);
    await sandbox('rm', 'short');

    await sandbox('create', '--silent', '--name', 'shorter', '--timeout', '15s', '--non-persistent');
    const ends = await at(['exec', '-i', '--no-extend-timeout', 'shorter', 'sh', '-c', 'echo it is up; exec sleep 1000']).end();
    assert.match(ends.said, /it is up\n/);
    assert.equal(ends.code, 1, ends.said);
    assert.equal((await found('shorter')).session.status, 'stopped');
    await sandbox('rm', 'shorter');
  });

  test('run -i, sh and create --connect begin with a sandbox of their own', limit, async () => {
    const ran = await at(['run', '-i', '--rm', '--name', 'ran', '--', 'sh', '-c', 'echo "is $((40 + 2))"; exit 4']).end();
    assert.match(ran.said, /is 42\n/);
    assert.equal(ran.code, 4);
    assert.equal(await found('ran'), undefined);

    const gone = at(['sh', '--rm', '--name', 'gone']);
    await gone.until('/vercel/sandbox/');
    gone.type('exit 3\r');
    assert.equal((await gone.end()).code, 3);
    assert.equal(await found('gone'), undefined);

    for (const words of [['sh', '--name', 'stays'], ['create', '--connect', '--name', 'stays'], ['fork', 'main', '--connect', '--name', 'stays']]) {
      const stays = at(words);
      await stays.until('/vercel/sandbox/\x01');
      stays.type('exit 2\r');
      assert.equal((await stays.end()).code, 2, stays.said);
      assert.equal((await found('stays')).session.status, 'running');
      await sandbox('rm', 'stays');
    }
  });
});
