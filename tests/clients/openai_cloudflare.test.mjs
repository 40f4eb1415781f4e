// The Cloudflare client of the OpenAI Agents SDK, unmodified, against a running Insula; and the same routes by plain
// fetch, as the smaller clients use them. INSULA_URL says where, INSULA_API_KEY with which key (none when unset).
//
// Nothing here sleeps to be in time: commands wait for a file that the test, or another command, makes.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, test } from 'node:test';

import { CloudflareSandboxClient } from '@openai/agents-extensions/sandbox/cloudflare';
import { file, Manifest, SandboxWorkspaceReadNotFoundError } from '@openai/agents/sandbox';

const url = process.env.INSULA_URL;
const key = process.env.INSULA_API_KEY || undefined;
assert.ok(url, 'INSULA_URL is not set; tests/clients/run starts a server and sets it');

// A command that hangs ends the test with a message of its own, not with that of a stuck run.
const exec_limit_ms = 30_000;
const limit = { timeout: 60_000 };

function new_client() {
  return new CloudflareSandboxClient({
    workerUrl: url,
    apiKey: key,
    timeouts: { execTimeoutMs: exec_limit_ms },
  });
}

/// Runs a command through the client and takes its report apart: the exit code, and stdout followed by stderr.
async function run(session, cmd, more = {}) {
  const report = await session.execCommand({ cmd, ...more });
  const code = report.match(/^Process exited with code (-?\d+)$/m);
  assert.ok(code, `a finished command, but the client says:\n${report}`);
  const mark = '\nOutput:\n';
  const at = report.indexOf(mark);
  assert.notEqual(at, -1, report);
  return { code: Number(code[1]), output: report.slice(at + mark.length) };
}

const shell_quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

async function write(session, path, content) {
  await session.materializeEntry({ path, entry: file({ content }) });
}

describe('OpenAI Agents SDK, Cloudflare client', () => {
  const client = new_client();
  let session;

  before(async () => {
    session = await client.create(
      new Manifest({
        entries: { 'docs/read me.txt': file({ content: 'from the manifest\n' }) },
        environment: { GREETING: "good day, it's \"me\" $HOME ä" },
      }),
    );
  }, limit);
  after(async () => await session?.delete(), limit);

  test('create gives a sandbox with the manifest in place', limit, async () => {
    assert.match(session.state.sandboxId, /^[a-z2-7]{26}$/);
    assert.equal(await session.running(), true);
    assert.deepEqual(await run(session, 'cat "docs/read me.txt"'), {
      code: 0,
      output: 'from the manifest',
    });
  });

  test('a command has its stdout, its stderr and its exit code', limit, async () => {
    assert.deepEqual(await run(session, 'echo out; echo err >&2'), { code: 0, output: 'out\nerr' });
    assert.deepEqual(await run(session, 'true'), { code: 0, output: '' });
    assert.deepEqual(await run(session, 'echo so far; exit 42'), { code: 42, output: 'so far' });
    assert.equal((await run(session, 'kill -TERM $$')).code, 143);
    const missing = await run(session, 'no_such_program');
    assert.equal(missing.code, 127);
    assert.match(missing.output, /no_such_program.*not found/);
  });

  test('a command sees the environment and the directory it was given', limit, async () => {
    assert.equal(
      (await run(session, 'printf %s "$GREETING"')).output,
      "good day, it's \"me\" $HOME ä",
    );
    assert.equal((await run(session, 'pwd')).output, '/workspace');
    assert.equal((await run(session, 'mkdir -p a/b; cd a')).code, 0);
    assert.equal((await run(session, 'pwd', { workdir: 'a/b' })).output, '/workspace/a/b');
    assert.equal((await run(session, 'pwd')).output, '/workspace', 'cd lasts for one command');
    assert.notEqual((await run(session, 'pwd', { workdir: 'not/there' })).code, 0);
  });

  test('a command reads an empty stdin', limit, async () => {
    assert.deepEqual(await run(session, 'cat; echo end'), { code: 0, output: 'end' });
  });

  test('a command behind a terminal is typed to, stopped with Ctrl-C, and ends', { timeout: 120_000 }, async () => {
    const running = /^Process running with session ID (\d+)$/m;
    const first = await session.execCommand({
      cmd: 'tty; read -p "na""me? " name; echo "hello $name."; exec sleep 1000',
      tty: true,
      yieldTimeMs: 250,
    });
    const sessionId = Number(first.match(running)?.[1]);
    assert.ok(sessionId, `a running command, but the client says:\n${first}`);
    // What is typed before the program reads waits for it in the terminal.
    let seen = first;
    const until = async (text, chars = '') => {
      const before = seen.length;
      seen += await session.writeStdin({ sessionId, chars, yieldTimeMs: 250 });
      while (!seen.slice(before).includes(text)) seen += await session.writeStdin({ sessionId, chars: '' });
    };
    if (!seen.includes('name? ')) await until('name? ');
    assert.match(seen, /\/dev\/pts\/\d+/);
    await until('hello ü€😀.', 'ü€😀\n');
    await until('$ ', '\x03');
    const last = await session.writeStdin({ sessionId, chars: 'exit 3\n', yieldTimeMs: 30_000 });
    assert.match(last, /^Process exited with code 3$/m);
  });

  test('long output arrives whole', limit, async () => {
    const lines = 200_000;
    const { code, output } = await run(session, `seq 1 ${lines}`);
    assert.equal(code, 0);
    const expected = Array.from({ length: lines }, (_, i) => i + 1).join('\n');
    assert.ok(output === expected, `${output.length} characters in place of ${expected.length}`);
  });

  test('a character of several bytes is never torn apart', limit, async () => {
    // 3 + 2 + 4 + 1 bytes: not a divisor of any buffer's size. The client decodes every event on its own.
    const unit = '€ä😀.';
    const times = 40_000;
    const { output } = await run(session, `yes '${unit}' | head -n ${times} | tr -d '\\n'`);
    assert.ok(output === unit.repeat(times), `${output.length} characters, or other ones`);
  });

  test('text and binary files come back as they were written', limit, async () => {
    const binary = randomBytes(300_000);
    binary.set([0x00, 0xff, 0xfe, 0x0d, 0x0a, 0x80], 0);
    await write(session, 'deep/er/text.txt', 'Grüße\r\nsecond line');
    await write(session, 'deep/binary', new Uint8Array(binary));
    await write(session, 'empty', '');
    const text = await session.readFile({ path: 'deep/er/text.txt' });
    assert.equal(new TextDecoder().decode(text), 'Grüße\r\nsecond line');
    const back = Buffer.from(await session.readFile({ path: '/workspace/deep/binary' }));
    assert.ok(back.equals(binary), `${back.length} bytes in place of ${binary.length}`);
    assert.equal((await session.readFile({ path: 'empty' })).length, 0);
    const { output } = await run(session, 'wc -c < deep/binary');
    assert.equal(output.trim(), String(binary.length));
  });

  for (const name of ['a b', 'a#b', 'a?b=c', 'a%b', 'a%20b', 'a+b', "it's", 'ä€😀', 'a&b;c:d@e,f$g']) {
    test(`a file may be called ${name}`, limit, async () => {
      await write(session, `names/${name}`, `I am ${name}`);
      const back = await session.readFile({ path: `names/${name}` });
      assert.equal(new TextDecoder().decode(back), `I am ${name}`);
      // And commands know it by that very name.
      const { code, output } = await run(session, `cat -- ${shell_quoted(name)}`, { workdir: 'names' });
      assert.deepEqual({ code, output }, { code: 0, output: `I am ${name}` });
    });
  }

  test('a missing file is told apart from other failures', limit, async () => {
    assert.equal(await session.pathExists('not/there'), false);
    await assert.rejects(session.readFile({ path: 'not/there' }), SandboxWorkspaceReadNotFoundError);
    await assert.rejects(session.readFile({ path: '../etc/passwd' }), (error) => {
      assert.ok(!(error instanceof SandboxWorkspaceReadNotFoundError), String(error));
      return true;
    });
  });

  test('the editor creates, changes, moves and deletes', limit, async () => {
    const editor = session.createEditor();
    await editor.createFile({ type: 'create_file', path: 'src/one.txt', diff: '+first\n+second' });
    await editor.updateFile({
      type: 'update_file',
      path: 'src/one.txt',
      moveTo: 'src/two.txt',
      diff: '@@\n first\n-second\n+zweite',
    });
    assert.equal(await session.pathExists('src/one.txt'), false);
    const moved = await session.readFile({ path: 'src/two.txt' });
    assert.equal(new TextDecoder().decode(moved).trimEnd(), 'first\nzweite');
    await editor.deleteFile({ type: 'delete_file', path: 'src/two.txt' });
    assert.equal(await session.pathExists('src/two.txt'), false);
  });

  test('commands of one sandbox run at the same time', limit, async () => {
    // Each waits for all the others to have begun: run one after the other, none would ever end.
    const many = 8;
    await run(session, 'mkdir meet');
    const all = Array.from({ length: many }, (_, i) =>
      run(
        session,
        `touch ${i}; until [ "$(ls | wc -l)" -eq ${many} ]; do sleep 0.02; done; echo I am ${i}`,
        { workdir: 'meet' },
      ),
    );
    const results = await Promise.all(all);
    results.forEach((result, i) => assert.deepEqual(result, { code: 0, output: `I am ${i}` }));
  });

  test('another client goes on with the same sandbox', limit, async () => {
    await write(session, 'kept.txt', 'still here');
    const saved = JSON.stringify(await client.serializeSessionState(session.state));
    // A client does not resume a state that it has read back itself, so one reads and another resumes.
    const state = await new_client().deserializeSessionState(JSON.parse(saved));
    const resumed = await new_client().resume(state);
    assert.equal(resumed.state.sandboxId, session.state.sandboxId);
    assert.deepEqual(await run(resumed, 'cat kept.txt'), { code: 0, output: 'still here' });
  });

  test('a workspace is persisted, and hydrated into another sandbox', limit, async () => {
    const other = await client.create(new Manifest({ entries: {} }));
    const long = 'n'.repeat(120);
    try {
      await run(
        session,
        `rm -rf * && mkdir -p tree/empty && echo kept > tree/kept && ln tree/kept tree/hard && mkfifo tree/fifo && ` +
          `echo long > ${long} && echo ü > tree/ümlaut && chmod 755 tree/kept && mkdir -p skip && echo x > skip/x`,
      );
      // The client refuses archives with anything in them that it does not trust.
      const archive = await session.persistWorkspace();
      assert.ok(archive.length > 0 && archive.length % 512 === 0);
      await other.hydrateWorkspace(archive);
      assert.deepEqual(await run(other, `cat tree/kept tree/hard ${long} tree/ümlaut; stat -c %a tree/kept; ls tree`), {
        code: 0,
        output: 'kept\nkept\nlong\nü\n755\nempty\nhard\nkept\nümlaut',
      });
    } finally {
      await other.delete();
    }
  });

  test('a snapshot of the session is restored into a fresh sandbox', limit, async () => {
    await write(session, 'state/notes.txt', 'before');
    const archive = await session.persistWorkspace();
    await write(session, 'state/notes.txt', 'after');
    await session.hydrateWorkspace(archive);
    const back = await session.readFile({ path: 'state/notes.txt' });
    assert.equal(new TextDecoder().decode(back), 'before');
    // Resuming, as the client offers it to the process that has the state, finds the workspace as it is.
    const resumed = await client.resume(session.state);
    assert.deepEqual(await run(resumed, 'cat state/notes.txt'), { code: 0, output: 'before' });
  });

  test('an archive that is too large for the service is refused by name', limit, async () => {
    const reply = await call('POST', `/v1/sandbox/${session.state.sandboxId}/hydrate`, {
      body: Buffer.alloc(32 * 1024 * 1024 + 1),
    });
    assert.equal(reply.status, 400);
    assert.deepEqual(await reply.json(), {
      error: 'tar payload too large: 33554433 bytes exceeds the 33554432-byte limit',
      code: 'invalid_request',
    });
    await assert.rejects(
      session.hydrateWorkspace(new TextEncoder().encode('garbage')),
      /archive/i,
    );
  });

  test('sandboxes do not see each other', limit, async () => {
    const other = await client.create();
    try {
      await write(session, 'mine', 'mine');
      assert.notEqual(other.state.sandboxId, session.state.sandboxId);
      assert.equal(await other.pathExists('mine'), false);
      await write(other, 'mine', 'another');
      assert.equal((await run(session, 'cat mine')).output, 'mine');
    } finally {
      await other.delete();
    }
  });

  test('delete ends the sandbox and its files; twice does no harm', limit, async () => {
    const doomed = await client.create();
    await write(doomed, 'gone.txt', 'x');
    await doomed.delete();
    await doomed.delete();
    // The id may be used again, and begins with nothing.
    const reply = await call('GET', `/v1/sandbox/${doomed.state.sandboxId}/file/workspace/gone.txt`);
    assert.equal(reply.status, 404);
    await doomed.delete();
  });
});

function call(method, path, { headers = {}, body } = {}) {
  return fetch(url + path, {
    method,
    headers: { ...(key ? { Authorization: `Bearer ${key}` } : {}), ...headers },
    body,
    signal: AbortSignal.timeout(limit.timeout),
  });
}

/// The events of an exec, each as soon as it is complete.
async function* events_of(response) {
  const decoder = new TextDecoder();
  let text = '';
  for await (const bytes of response.body) {
    text += decoder.decode(bytes, { stream: true });
    for (let end; (end = text.indexOf('\n\n')) !== -1; text = text.slice(end + 2)) {
      const block = text.slice(0, end);
      if (block.startsWith(':')) {
        continue; // A sign of life.
      }
      const parts = block.match(/^event: (\w+)\ndata: (.*)$/);
      assert.ok(parts, `not an event: ${JSON.stringify(block)}`);
      const [, name, data] = parts;
      const is_output = name === 'stdout' || name === 'stderr';
      yield { name, data: is_output ? Buffer.from(data, 'base64').toString() : JSON.parse(data) };
    }
  }
  assert.equal(text, '', 'the stream ends with a whole event');
}

describe('plain HTTP', () => {
  let id;
  const box = (rest) => `/v1/sandbox/${id}${rest}`;
  const exec = (request) =>
    call('POST', box('/exec'), {
      headers: { 'Content-Type': 'application/json' },
      body: typeof request === 'string' ? request : JSON.stringify(request),
    });

  before(async () => {
    const reply = await call('POST', '/v1/sandbox');
    assert.equal(reply.status, 200);
    ({ id } = await reply.json());
    assert.match(id, /^[a-z2-7]{26}$/);
  }, limit);
  after(async () => {
    assert.equal((await call('DELETE', box(''))).status, 204);
  }, limit);

  test('the server is healthy, and says so to anyone', limit, async () => {
    const reply = await fetch(`${url}/health`, { signal: AbortSignal.timeout(limit.timeout) });
    assert.equal(reply.status, 200);
    assert.equal(await reply.text(), '{"ok":true}');
  });

  test('without the key there is nothing', { ...limit, skip: key ? false : 'no key is set' }, async () => {
    for (const Authorization of ['', 'Bearer wrong', `Basic ${key}`]) {
      const headers = Authorization ? { Authorization } : {};
      const signal = AbortSignal.timeout(limit.timeout);
      const reply = await fetch(url + box('/running'), { headers, signal });
      assert.equal(reply.status, 401);
      assert.deepEqual(Object.keys(await reply.json()).sort(), ['code', 'error']);
    }
  });

  test('the stream of a short command, byte for byte', limit, async () => {
    const reply = await exec({ argv: ['echo', 'hello'] });
    assert.equal(reply.status, 200);
    assert.equal(reply.headers.get('content-type'), 'text/event-stream');
    assert.equal(
      await reply.text(),
      'event: stdout\ndata: aGVsbG8K\n\nevent: exit\ndata: {"exit_code":0}\n\n',
    );
  });

  test('output arrives while the command still runs', limit, async () => {
    const wait = 'until [ -e go ]; do sleep 0.02; done';
    const argv = ['sh', '-lc', `echo one; ${wait}; echo two >&2; exit 3`];
    const events = events_of(await exec({ argv, timeout_ms: exec_limit_ms }));
    assert.deepEqual((await events.next()).value, { name: 'stdout', data: 'one\n' });
    // The first line is here, and the command cannot end before the next request has been served.
    const put = await call('PUT', box('/file/workspace/go'), {
      headers: { 'Content-Type': 'text/plain' },
      body: '',
    });
    assert.equal(put.status, 200);
    assert.deepEqual(await put.json(), { ok: true });
    assert.deepEqual((await events.next()).value, { name: 'stderr', data: 'two\n' });
    assert.deepEqual((await events.next()).value, { name: 'exit', data: { exit_code: 3 } });
    assert.equal((await events.next()).done, true);
  });

  test('a command that takes too long ends with 124', limit, async () => {
    const reply = await exec({ argv: ['sh', '-c', 'echo begun; exec sleep 600'], timeout_ms: 300 });
    const all = [];
    for await (const event of events_of(reply)) {
      all.push(event);
    }
    assert.deepEqual(all, [
      { name: 'stdout', data: 'begun\n' },
      { name: 'stderr', data: 'Command timed out after 300ms\n' },
      { name: 'exit', data: { exit_code: 124 } },
    ]);
  });

  test('a client that hangs up does not stop its command', limit, async () => {
    const argv = ['sh', '-c', 'echo begun; until [ -e on ]; do sleep 0.02; done; echo more; touch done'];
    const reply = await exec({ argv, timeout_ms: exec_limit_ms });
    const reader = reply.body.getReader();
    await reader.read();
    await reader.cancel();
    await call('PUT', box('/file/workspace/on'), { body: '' });
    const wait = 'until [ -e done ]; do sleep 0.02; done; echo seen';
    const events = events_of(await exec({ argv: ['sh', '-c', wait], timeout_ms: exec_limit_ms }));
    assert.deepEqual((await events.next()).value, { name: 'stdout', data: 'seen\n' });
    assert.deepEqual((await events.next()).value, { name: 'exit', data: { exit_code: 0 } });
  });

  test('a wrong request gets an answer that says what is wrong', limit, async () => {
    const wrong = [
      [await exec('{'), 400, 'Invalid JSON body'],
      [await exec({ argv: [] }), 400, 'argv must be a non-empty array'],
      [await exec({ argv: ['pwd'], cwd: '/etc' }), 403, 'cwd must resolve to a location within /workspace'],
      [await call('GET', box('/file/etc/passwd')), 403, 'path must resolve to a location within /workspace'],
    ];
    for (const [reply, status, error] of wrong) {
      assert.equal(reply.status, status);
      assert.deepEqual(await reply.json(), { error, code: 'invalid_request' });
    }
    const missing = await call('GET', box('/file/workspace/none'));
    assert.equal(missing.status, 404);
    assert.deepEqual(await missing.json(), {
      error: 'File not found: /workspace/none',
      code: 'workspace_read_not_found',
    });
  });

  test('a file of 32 MiB goes in and comes out; one byte more is refused', limit, async () => {
    const most = 32 * 1024 * 1024;
    const big = randomBytes(most);
    const path = box('/file/workspace/big');
    assert.equal((await call('PUT', path, { body: big })).status, 200);
    const back = Buffer.from(await (await call('GET', path)).arrayBuffer());
    assert.ok(back.equals(big), `${back.length} bytes came back`);
    const more = await call('PUT', box('/file/workspace/more'), { body: Buffer.alloc(most + 1) });
    assert.equal(more.status, 413);
    assert.equal((await more.json()).code, 'payload_too_large');
    assert.equal((await call('GET', box('/file/workspace/more'))).status, 404);
  });
});
