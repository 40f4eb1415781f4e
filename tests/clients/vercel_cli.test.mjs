// The command line of the Vercel Sandbox service, unmodified, against a running Insula: INSULA_URL says where, INSULA_API_KEY
// with which key, INSULA_PROGRAM is the server, INSULA_DOCUMENT the page that shows how. No terminal is there.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

const { INSULA_URL: url, INSULA_API_KEY: key, INSULA_PROGRAM: program, INSULA_DOCUMENT: document } = process.env;
assert.ok(url && key && program && document, 'INSULA_URL, INSULA_API_KEY, INSULA_PROGRAM or INSULA_DOCUMENT is not set');

const limit = { timeout: 180_000 };
const command = new URL('node_modules/sandbox/bin/sandbox.mjs', import.meta.url).pathname;
const scope = ['--scope', 'team_cli', '--project', 'prj_cli'];
let home, around;

before(async () => {
  home = await mkdtemp('/var/tmp/insula-cli-');
  await writeFile(join(home, 'insula-vercel.mjs'), await (await fetch(`${url}/insula-vercel.mjs`)).text());
  await mkdir(join(home, 'bin'));
  await writeFile(join(home, 'bin/sandbox'), `#!/bin/sh\nexec '${process.execPath}' '${command}' "$@"\n`);
  await chmod(join(home, 'bin/sandbox'), 0o755);
  around = {
    PATH: `${join(home, 'bin')}:${process.env.PATH}`, HOME: home, TMPDIR: home, INSULA_URL: url, VERCEL_AUTH_TOKEN: key,
    NODE_OPTIONS: `--import=${join(home, 'insula-vercel.mjs')}`, SANDBOX_SKIP_VERSION_CHECK: '1', VERCEL_SANDBOX_TELEMETRY_DISABLED: '1', NO_COLOR: '1',
  };
});
after(() => rm(home, { recursive: true, force: true }));

function start(words, { env = {}, cwd = home, input = '' } = {}) {
  const child = spawn('sandbox', words, { env: { ...around, ...env }, cwd, stdio: 'pipe' });
  const said = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (some) => { said.out += some; });
  child.stderr.setEncoding('utf8').on('data', (some) => { said.err += some; });
  child.stdin.on('error', () => {}).end(input);
  return { child, said, end: once(child, 'close').then(([code]) => ({ code, ...said })) };
}
/** All that it says, and its exit code. */
const sandbox = (...words) => start(words).end;
/** The same with a team and a project, which must be well. */
async function well([name, ...words], options) {
  const subcommand = ['config', 'snapshots', 'sessions', 'drives'].includes(name) ? [name, words.shift()] : [name];
  const got = await start([...subcommand, ...scope, ...words], options).end;
  assert.equal(got.code, 0, `${name} ${words.join(' ')}: ${got.err}`);
  return got;
}
const exec = (...words) => sandbox('exec', ...scope, ...words);
/** The rows of a table, without its head, by the words of their columns. */
function rows(text) {
  const [head, ...lines] = text.split('\n').filter((line) => line.trim() !== '');
  const names = [...head.matchAll(/\S+(?: \S+)*/g)].map((each) => ({ name: each[0], at: each.index }));
  return lines.filter((line) => !line.startsWith('More results')).map((line) => Object.fromEntries(
    names.map(({ name, at }, i) => [name, line.slice(at, names[i + 1]?.at).trim()])));
}
const names = (text) => rows(text).map((each) => each.NAME);

describe('the command line', { concurrency: 1 }, () => {
  before(async () => { await well(['create', '--name', 'main', '-e', 'GREETING=hello', '-t', 'kind=test', '-p', '3000', '--timeout', '20m']); }, limit);
  after(async () => { await sandbox('rm', ...scope, 'main'); }, limit);

  test('create says the name, and what there is', limit, async () => {
    const made = await well(['create', '--name', 'second', '-p', '8080', '--non-persistent', '--vcpus', '1', '--runtime', 'node24', '--network-policy', 'deny-all']);
    assert.equal(made.out.trim(), 'second');
    assert.match(made.err, /created\.[^]*team: team_cli[^]*region: iad1[^]*project: prj_cli[^]*8080 -> http:\/\/sb-[^]*sandbox ssh second/);
    assert.equal((await well(['create', '--silent', '--non-persistent', '--name', 'silent'])).out, '');
    const twice = await sandbox('create', ...scope, '--name', 'second');
    assert.equal(twice.code, 1);
    assert.match(twice.err, /A sandbox with the name 'second' already exists for this project\.[^]*status code: 400/);
    assert.match((await sandbox('create', ...scope, '--image', 'nothing-such')).err, /there is no image nothing-such on this node/);
    const [listed] = rows((await well(['ls', '--name-prefix', 'sec', '--sort-by', 'name'])).out);
    assert.deepEqual([listed.NAME, listed.STATUS, listed.REGION, listed.MEMORY, listed.VCPUS, listed['IMAGE/RUNTIME']], ['second', 'running', 'iad1', '2,048 MB', '1', 'node24']);
    const removed = await well(['rm', 'second', 'silent']);
    assert.match(removed.out + removed.err, /✔ Removing sandbox second/);
    const again = await sandbox('rm', ...scope, 'second');
    assert.equal(again.code, 1);
    assert.match(again.out + again.err, /Named sandbox 'second' not found for this project\./);
  });

  test('ls has pages, tags and what does not run', limit, async () => {
    await well(['create', '--silent', '--name', 'idle']);
    const stopped = await well(['stop', 'idle']);
    assert.match(stopped.err, /Sandbox stopped\.[^]*session: sbx_[^]*snapshot: snap_/);
    assert.deepEqual(names((await well(['ls'])).out), ['main']);
    assert.deepEqual(names((await well(['ls', '--all'])).out).sort(), ['idle', 'main']);
    assert.deepEqual(names((await well(['ls', '--all', '--tag', 'kind=test'])).out), ['main']);
    const first = await well(['ls', '--all', '--limit', '1']);
    const [, cursor] = /--cursor (\S+)/.exec(first.out);
    const second = await well(['ls', '--all', '--limit', '1', '--cursor', cursor]);
    assert.deepEqual([...names(first.out), ...names(second.out)].sort(), ['idle', 'main']);
    const some = await sandbox('stop', ...scope, 'idle', 'nobody');
    assert.equal(some.code, 1);
    assert.match(some.err, /✔ Sandbox stopped\.[^]*✖ Named sandbox 'nobody' not found for this project\./);
    await well(['rm', 'idle']);
  });

  test('exec has the streams, the exit code, the environment, the directory, sudo and a time limit', limit, async () => {
    const got = await exec('main', 'sh', '-c', 'echo out; echo err >&2; exit 7');
    assert.deepEqual([got.code, got.out], [7, 'out\n']);
    assert.match(got.err, /^err$/m);
    assert.equal((await exec('-e', 'X=1', '-w', '/tmp', 'main', 'sh', '-c', 'echo $X $GREETING $PWD')).out, '1 hello /tmp\n');
    assert.equal((await exec('--sudo', 'main', 'id', '-u')).out, '0\n');
    assert.equal((await exec('main', 'id', '-un')).out, 'vercel-sandbox\n');
    const late = await exec('--timeout', '1s', 'main', 'sleep', '60');
    assert.equal(late.code, 137);
    assert.match(late.err, /Command was killed/);
    const unknown = await exec('main', 'no-such-program');
    assert.equal(unknown.code, 1);
    assert.match(unknown.err, /no-such-program: No such file or directory[^]*status code: 400/);
    const made = await (await fetch(`${url}/v1/sandbox`, { method: 'POST', headers: { authorization: `Bearer ${key}` } })).json();
    const other = `${url}/v1/sandbox/${made.id}`;
    assert.equal((await fetch(`${other}/file/workspace/here`, { method: 'PUT', body: 'x', headers: { authorization: `Bearer ${key}` } })).status, 200);
    assert.equal((await exec(`sbx_${made.id}`, 'ls')).out, 'here\n');
    assert.equal((await fetch(other, { method: 'DELETE', headers: { authorization: `Bearer ${key}` } })).status, 204);
    assert.match((await exec(`sbx_${made.id}`, 'ls')).err, /status code: 404/);
    assert.match((await exec('nobody', 'true')).err, /Named sandbox 'nobody' not found for this project\.[^]*status code: 404/);
    // The command line gives nothing to standard input, and such a command reads its end.
    assert.deepEqual((({ code, out }) => [code, out])(await well(['exec', 'main', 'cat'], { input: 'piped' })), [0, '']);
    const much = await exec('main', 'sh', '-c', 'seq 200000');
    assert.equal(much.out, `${Array.from({ length: 200_000 }, (_, i) => i + 1).join('\n')}\n`);
    assert.match((await exec('-i', 'main', 'sh')).err, /requires a terminal/);
  });

  test('exec begins a session, and what was written is there', limit, async () => {
    await well(['create', '--silent', '--name', 'resumed']);
    await well(['exec', 'resumed', 'sh', '-c', 'echo kept > kept']);
    await well(['stop', 'resumed']);
    assert.equal((await well(['exec', 'resumed', 'cat', 'kept'])).out, 'kept\n');
    assert.equal(rows((await well(['sessions', 'list', 'resumed'])).out).length, 1);
    const all = rows((await well(['sessions', 'list', 'resumed', '--all'])).out);
    assert.deepEqual(all.map((each) => each.STATUS), ['running', 'stopped']);
    await well(['rm', 'resumed']);
  });

  test('what is interrupted ends the command line, and not the command', limit, async () => {
    const { child, end, said } = start(['exec', ...scope, 'main', 'sh', '-c', 'echo $$ > /tmp/pid; echo up; exec sleep 1000']);
    while (!said.out.includes('up')) await delay(50);
    child.kill('SIGINT');
    await end;
    assert.equal(child.signalCode ?? child.exitCode, 'SIGINT');
    await well(['exec', 'main', 'sh', '-c', 'kill $(cat /tmp/pid)']);
  });

  test('run makes, runs, stops and removes', limit, async () => {
    const ran = await sandbox('run', ...scope, '--silent', '--rm', '--', 'sh', '-c', 'echo ran; exit 3');
    assert.deepEqual([ran.code, ran.out], [3, 'ran\n']);
    assert.deepEqual(names((await well(['ls', '--all'])).out), ['main']);
    await well(['run', '--name', 'again', '--stop', '--', 'sh', '-c', 'echo one > file']);
    assert.deepEqual(rows((await well(['ls', '--all', '--name-prefix', 'again', '--sort-by', 'name'])).out).map((each) => each.STATUS), ['stopped']);
    assert.equal((await well(['run', '--silent', '--name', 'again', '--', 'cat', 'file'])).out, 'one\n');
    await well(['rm', 'again']);
  });

  test('cp takes a file both ways, and from one sandbox to another', limit, async () => {
    const bytes = Buffer.from(Array.from({ length: 3_000_000 }, (_, i) => (i * 7919) % 251));
    await writeFile(join(home, 'bytes'), bytes);
    await well(['cp', 'bytes', 'main:/tmp/new/directory/bytes']);
    await well(['cp', 'main:/tmp/new/directory/bytes', 'back']);
    assert.ok(bytes.equals(await readFile(join(home, 'back'))));
    await well(['cp', 'bytes', 'main:relative']);
    assert.equal((await well(['exec', 'main', 'stat', '-c', '%U %s', '/vercel/sandbox/relative'])).out, 'vercel-sandbox 3000000\n');
    await well(['cp', 'main:relative', 'main:/vercel/sandbox/other']);
    await well(['exec', 'main', 'cmp', 'relative', 'other']);
    assert.match((await well(['cp', 'main:missing', 'here'])).err, /File not found: missing in sandbox main/);
    // The command line itself takes no directory; that of a sandbox is refused in words.
    const directory = await sandbox('cp', ...scope, 'main:/etc', 'etc');
    assert.equal(directory.code, 1);
    assert.match(directory.err, /\/etc: Is a directory[^]*status code: 400/);
    assert.equal((await sandbox('cp', ...scope, '.', 'main:here')).code, 1);
  });

  test('snapshots, their tree, what begins with them, and forks', limit, async () => {
    await well(['create', '--silent', '--name', 'source', '-e', 'FROM=source']);
    await well(['exec', 'source', 'sh', '-c', 'echo first > file']);
    assert.equal((await sandbox('snapshot', ...scope, 'source')).code, 1); // It asks for --stop.
    const taken = await well(['snapshot', 'source', '--stop', '--expiration', '2d']);
    const [id] = /snap_\w+/.exec(taken.err + taken.out);
    const [listed] = rows((await well(['snapshots', 'list', '--name', 'source'])).out);
    assert.deepEqual([listed.ID, listed.STATUS, listed.EXPIRATION, listed.REGIONS], [id, 'created', 'in 2 days', 'iad1']);
    assert.equal(rows((await well(['snapshots', 'get', id])).out)[0].ID, id);
    await well(['create', '--silent', '--name', 'next', '--snapshot', id]);
    assert.equal((await well(['exec', 'next', 'cat', 'file'])).out, 'first\n');
    const left = /snap_\w+/.exec((await well(['stop', 'next'])).err)[0];
    assert.match((await well(['snapshots', 'tree', 'next'])).out, new RegExp(`${left}.*current[^]*${id}[^]*root`));
    assert.match((await well(['snapshots', 'tree', 'source'])).out, new RegExp(`${left}[^]*${id}.*current[^]*root`));
    await well(['config', 'current-snapshot', 'next', id]);
    const forked = await well(['fork', 'source', '--name', 'forked', '-e', 'FROM=fork']);
    assert.match(forked.err, /forked from source/);
    assert.equal((await well(['exec', 'forked', 'sh', '-c', 'cat file; echo $FROM'])).out, 'first\nfork\n');
    await well(['rm', 'source', 'forked', 'next']);
    await well(['snapshots', 'rm', left]);
    assert.equal(rows((await well(['snapshots', 'get', left])).out)[0].STATUS, 'deleted');
    const unknown = await sandbox('snapshots', 'get', ...scope, 'snap_nobody');
    assert.equal(unknown.code, 1);
    assert.match(unknown.err, /Snapshot not found\./);
  });

  test('config changes everything', limit, async () => {
    await well(['create', '--silent', '--name', 'set']);
    for (const words of [['vcpus', '4'], ['timeout', '10m'], ['persistent', 'false'], ['persistent', 'true'], ['region', 'sfo1'],
      ['failover-regions', 'sfo1,fra1'], ['failover-regions', 'none'], ['network-id', 'none'], ['snapshot-expiration', '3d'],
      ['keep-last-snapshots', '3'], ['keep-last-snapshots-for', '5d'], ['delete-evicted-snapshots', 'false'],
      ['network-policy', '--allowed-domain', 'example.com'], ['network-policy', '--network-policy', 'deny-all'],
      ['ports', '-p', '3000', '-p', '4000'], ['tags', '-t', 'a=b', '-t', 'c=d']])
      await well(['config', words[0], 'set', ...words.slice(1)]);
    const is = Object.fromEntries(rows((await well(['config', 'list', 'set'])).out).map((each) => [each.FIELD, each.VALUE]));
    assert.deepEqual(is, {
      Region: 'sfo1', 'Failover regions': '-', 'Secure Compute network': '-', vCPUs: '4', Timeout: '10 minutes', Persistent: 'true', 'Network policy': 'deny-all',
      Ports: '3000, 4000', 'Snapshot expiration': '3 days', 'Keep last snapshots': 'count=3, for=5 days, delete-evicted-snapshots=false', 'Current snapshot': '-',
      Tags: 'a=b, c=d', Mounts: '-',
    });
    const unknown = await sandbox('config', 'current-snapshot', ...scope, 'set', 'snap_nobody');
    assert.equal(unknown.code, 1);
    assert.match(unknown.err, /Snapshot 'snap_nobody' not found\./);
    await well(['rm', 'set']);
  });

  test('drives', limit, async () => {
    await well(['drives', 'get-or-create', 'cache', '--max-size', String(64 << 20)]);
    await well(['create', '--silent', '--name', 'writer', '--mount', 'cache:/cache']);
    await well(['exec', 'writer', 'sh', '-c', 'echo on the drive > /cache/file']);
    const [listed] = rows((await well(['drives', 'list'])).out);
    assert.deepEqual([listed.NAME, listed.SIZE, listed['ATTACHED SANDBOX']], ['cache', '64 MiB', 'writer']);
    const refused = await sandbox('drives', 'rm', ...scope, 'cache');
    assert.equal(refused.code, 1);
    assert.match(refused.out + refused.err, /attached/);
    await well(['stop', 'writer']);
    await well(['config', 'mounts', 'writer', '--mount', 'cache:/other:snapshot']);
    assert.equal((await well(['exec', 'writer', 'cat', '/other/file'])).out, 'on the drive\n');
    await well(['rm', 'writer']);
    await well(['drives', 'rm', 'cache']);
    assert.deepEqual(rows((await well(['drives', 'list'])).out), []);
  });

  test('without a team and a project it finds both', limit, async () => {
    const usual = await sandbox('create', '--name', 'usual');
    assert.match(usual.err, /team: team_insula[^]*project: vercel-sandbox-default-project/);
    assert.deepEqual(names((await sandbox('ls')).out), ['usual']);
    assert.deepEqual(names((await sandbox('ls', '--team', 'acme')).out), ['usual']); // Projects are the whole server's.
    assert.deepEqual(names((await sandbox('ls', '--project', 'prj_cli')).out), ['main']);
    assert.equal((await sandbox('rm', 'usual')).code, 0);

    const linked = join(home, 'linked');
    await mkdir(join(linked, '.vercel'), { recursive: true });
    await writeFile(join(linked, '.vercel/project.json'), JSON.stringify({ orgId: 'team_cli', projectId: 'prj_cli' }));
    assert.deepEqual(names((await start(['ls'], { cwd: linked }).end).out), ['main']);
  });

  test('tokens of one project', limit, async () => {
    const made = execFileSync(program, ['token', 'vercel', '--team', 'me', '--project', 'prj_cli'], { env: { SANDBOX_API_KEY: key }, encoding: 'utf8' });
    const { VERCEL_TOKEN: token, VERCEL_OIDC_TOKEN: identity } = Object.fromEntries(made.trim().split('\n').map((line) => line.split(/=(.*)/s)));
    const list = async (words, env, cwd) => names((await start(['ls', ...words], { env: { VERCEL_AUTH_TOKEN: '', ...env }, cwd }).end).out);
    assert.deepEqual(await list(['--scope', 'me', '--project', 'prj_cli'], { VERCEL_AUTH_TOKEN: token }), ['main']);
    assert.deepEqual(await list([], { VERCEL_OIDC_TOKEN: identity }), ['main']);
    assert.deepEqual(await list([], { VERCEL_AUTH_TOKEN: identity }), ['main']);
    const there = join(home, 'there');
    await mkdir(there);
    await writeFile(join(there, '.env.local'), made);
    assert.deepEqual(await list([], {}, there), ['main']);

    const lost = await start(['ls'], { env: { VERCEL_AUTH_TOKEN: token } }).end;
    assert.equal(lost.code, 1);
    assert.match(lost.err, /One that there is: --scope me --project prj_cli/);
    const elsewhere = await start(['ls', '--scope', 'me', '--project', 'other'], { env: { VERCEL_AUTH_TOKEN: token } }).end;
    assert.equal(elsewhere.code, 1);
    assert.match(elsewhere.err, /The project was not found\.[^]*status code: 404/);
    const wrong = await start(['ls', ...scope], { env: { VERCEL_AUTH_TOKEN: 'wrong' } }).end;
    assert.equal(wrong.code, 1);
    assert.match(wrong.err, /The token is not one of this server's, or has expired\.[^]*status code: 403/);
  });

  test('what the page shows is what it says', limit, async () => {
    const [, text] = /```console\n([^]*?)```/.exec(await readFile(document, 'utf8'));
    const steps = text.split(/^\$ /m).slice(1).map((step) => step.split(/\n(.*)/s));
    assert.ok(steps.length > 3);
    for (const [words, shown] of steps) {
      const child = spawn('sh', ['-c', words], { env: around, cwd: home, stdio: ['ignore', 'pipe', 'pipe'] });
      let said = '';
      child.stdout.setEncoding('utf8').on('data', (some) => { said += some; });
      child.stderr.resume();
      await once(child, 'close');
      assert.equal(said.trim(), shown.trim(), words);
    }
  });
});
