// Rules about requests while something fails: brokers and the gateway that are killed, sites that misbehave, floods from
// inside, and root inside that looks for what it is not to see. INSULA_PROGRAM is the server, INSULA_URL says where it is to be.
// Node.js is started with insula-vercel.mjs.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer as create_https } from 'node:https';
import { networkInterfaces } from 'node:os';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

import { Sandbox } from '@vercel/sandbox';

import { KillableServer } from './killable_server.mjs';
import { make_certificate, make_certificates, make_self_signed, serve_bytes, serve_names, serve_sites } from './tls_sites.mjs';

const { INSULA_PROGRAM: program, INSULA_URL: url } = process.env;
assert.ok(program && url, 'INSULA_PROGRAM or INSULA_URL is not set');

const key = 'key-of-this-test';
const scope = { token: key, teamId: 'team_test', projectId: 'prj_test' };
const limit = { timeout: 300_000 };
const secret = 'Bearer key-that-nobody-inside-sees';
const MiB = 1 << 20;
const most_of_broker = 64 * MiB;
const names_at = '127.29.2.1', sites_at = '127.29.2.2', bad_at = '127.29.2.3', odd_at = '127.29.2.4', front_at = '127.29.2.5';

/** The first that is true, of a question that is asked again and again. */
async function eventually(ask, what, seconds = 60) {
  let last;
  for (const end = Date.now() + seconds * 1000; Date.now() < end; await delay(50)) {
    last = await ask();
    if (last) return last;
  }
  assert.fail(`${what}: ${last}`);
}

/** Until it takes more, or takes nothing any more. */
function room_in(sink) {
  return new Promise((resume) => {
    const done = () => {
      sink.off('drain', done).off('close', done);
      resume();
    };
    sink.on('drain', done).on('close', done);
  });
}

/** Processes of that name that belong to the state directory. */
async function processes(name, state) {
  const all = [];
  for (const pid of (await readdir('/proc')).filter((each) => /^\d+$/.test(each))) {
    const words = (await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '')).split('\0');
    if (words[0].split('/').at(-1) === name && words.includes(state)) all.push({ pid: Number(pid), user: words[1] });
  }
  return all;
}

async function memory_of(pid) {
  const text = await readFile(`/proc/${pid}/status`, 'utf8');
  const bytes = (name) => Number(text.match(new RegExp(`${name}:\\s*(\\d+) kB`))[1]) * 1024;
  return { now: bytes('VmRSS'), most: bytes('VmHWM') };
}

describe('requests with rules where something fails', () => {
  let server, files, box, other;
  const open = []; // What listens.
  const heard = []; // Hosts with paths, in the order of the requests.
  const waiting = new Map(); // By path: lets the answer of slow. end.
  let bad_bytes = 0, hangs = 0, ended_hangs = 0, front_requests = 0;
  let downloaded = 0, uploaded = 0;
  const events = new Map(); // By path: says the next event.
  const set = (value = secret) => [{ transform: [{ headers: { authorization: value } }] }];
  const run = (in_box) => async (script, words = {}) => {
    const done = await in_box.runCommand({ cmd: 'bash', args: ['-c', script], ...words });
    return `${await done.stdout()}${await done.stderr()}`;
  };
  const out = (script, words) => run(box)(script, words);
  const begin = (script, in_box = box) => in_box.runCommand({ cmd: 'bash', args: ['-c', script], detached: true });
  const allow = (rules) => box.update({ networkPolicy: { allow: rules } });
  const id_of = (of) => of.currentSession().sessionId.slice('sbx_'.length, 'sbx_'.length + 26);
  const network = async (of = box) => (await fetch(`${url}/v1/sandbox/${id_of(of)}/network`, { headers: { authorization: `Bearer ${key}` } })).json();
  const brokers = () => processes('insula-broker', server.state);
  /** Of that sandbox: its user is the same each time. */
  const broker = (user) => eventually(async () => (await brokers()).find((each) => each.user === user)?.pid, 'there is a broker');
  let mine; // The user of box's broker.
  const status = (words) => out(`curl -sS -o /tmp/said -w '%{http_code} ' ${words}; cat /tmp/said; rm -f /tmp/said`);

  async function answer(request, response) {
    const host = (request.authority ?? request.headers.host).split('.')[0];
    heard.push(`${host}${request.url}`);
    switch (host) {
      case 'slow':
        response.write('first\n');
        await new Promise((resume) => { waiting.set(request.url, resume); });
        return response.end('last\n');
      case 'quiet': // What it has heard it does not say.
        response.write('quiet\n');
        await new Promise((resume) => { waiting.set(request.url, resume); });
        return response.end(createHash('sha256').update(request.headers.authorization ?? '').digest('hex'));
      case 'hangs':
        ++hangs;
        await new Promise((resume) => { response.on('close', resume); });
        ++ended_hangs;
        return;
      case 'interim': // Of HTTP/2.
        for (let i = 0; i < 100_000 && !response.stream.destroyed; ++i) response.stream.additionalHeaders({ ':status': 103, link: '</a>' });
        return response.stream.close?.();
      case 'large': {
        const some = Buffer.alloc(MiB, 'x');
        for (downloaded = 0; downloaded < 1024 * MiB && !response.destroyed;) {
          downloaded += some.length;
          if (!response.write(some)) await room_in(response);
        }
        return response.end();
      }
      case 'upload': {
        uploaded = 0;
        for await (const some of request) uploaded += some.length;
        return response.end(`${uploaded}\n`);
      }
      case 'events':
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        for (let i = 0; i < 5; ++i) {
          response.write(`data: ${i}\n\n`);
          await new Promise((resume) => { events.set(request.url, resume); });
        }
        return response.end();
      case 'grpc': {
        const parts = [];
        for await (const some of request) parts.push(some);
        response.writeHead(200, { 'content-type': 'application/grpc' });
        response.addTrailers({ 'grpc-status': '0', 'grpc-message': `te=${request.headers.te}` });
        return response.end(Buffer.concat(parts));
      }
      case 'front': // A preview has no TLS of its own.
        ++front_requests;
        try {
          const said = await fetch(`${box.domain(3000)}${request.url}`);
          response.writeHead(said.status);
          return response.end(await said.text());
        } catch (why) {
          response.writeHead(504);
          return response.end(String(why));
        }
      default:
        return response.end(JSON.stringify({ host, path: request.url, authorization: request.headers.authorization ?? null }));
    }
  }

  /** In HTTP/1.1, byte by byte. */
  function misbehave(socket) {
    const host = String(socket.servername).split('.')[0];
    let said = '';
    socket.on('data', async (some) => {
      if (said.includes('\r\n\r\n')) return;
      said += some.toString('latin1');
      if (!said.includes('\r\n\r\n')) return;
      heard.push(`${host}/`);
      const line = host === 'headers1' ? `x-${'a'.repeat(100)}: ${'b'.repeat(8000)}\r\n` : 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'.repeat(100);
      if (host === 'headers1') socket.write('HTTP/1.1 200 OK\r\n');
      for (let sent = 0; sent < 1024 * MiB && !socket.destroyed; sent += line.length)
        if (!socket.write(line)) await room_in(socket);
      socket.end();
    });
  }

  before(async () => {
    files = await mkdtemp('/var/tmp/insula-faults-');
    const good = await make_certificates(files);
    const bad = {
      wrong: await make_certificate(files, 'wrong', 'elsewhere.test'), expired: await make_certificate(files, 'expired', 'expired.site.test', -1),
      self: await make_self_signed(files, 'self', 'self.site.test'),
    };
    const own = Object.values(networkInterfaces()).flat().find((each) => !each.internal && each.family === 'IPv4')?.address;
    const places = {
      wrong: bad_at, expired: bad_at, self: bad_at, headers1: odd_at, interim1: odd_at, front: front_at,
      metadata: '169.254.169.254', home: '127.0.0.1', node: own, else: undefined,
    };
    open.push(await serve_names(names_at, (name) => (name in places ? places[name] : sites_at)));
    const sites = await serve_sites(sites_at, good, answer);
    sites.on('checkContinue', (request, response) => {
      if (request.url === '/no') {
        response.writeHead(413, { connection: 'close' });
        return response.end('too much\n');
      }
      response.writeContinue();
      answer(request, response).catch(() => {});
    });
    sites.on('upgrade', (request, socket) => { // Frames go back as they come, without their masks.
      const accept = createHash('sha1').update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
      socket.on('error', () => {});
      socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\nX-Saw: ${request.headers.authorization}\r\n\r\n`);
      socket.on('data', (frame) => {
        const mask = frame.subarray(2, 6), body = frame.subarray(6).map((byte, i) => byte ^ mask[i % 4]);
        socket.end(Buffer.concat([Buffer.from([0x81, body.length]), body]));
      });
    });
    open.push(sites);
    open.push(await serve_bytes(bad_at, {
      SNICallback: (name, tell) => { tell(null, contexts[name.split('.')[0]]); }, ...good,
    }, (socket) => { socket.on('data', (some) => { bad_bytes += some.length; }); }));
    const { createSecureContext } = await import('node:tls');
    const contexts = Object.fromEntries(Object.entries(bad).map(([name, pair]) => [name, createSecureContext(pair)]));
    open.push(await serve_bytes(odd_at, good, misbehave));
    const front = create_https({ ...good }, (request, response) => { answer(request, response).catch(() => {}); });
    await new Promise((resume) => { front.listen(443, front_at, resume); });
    open.push(front);
    const allowed = [sites_at, bad_at, odd_at, front_at].map((each) => `${each}/32`).join(', ');
    await writeFile(`${files}/insula.yaml`, `network: {allow_private: [${allowed}], resolvers: [${names_at}], ca_file: ${files}/authority.pem}\n`);
    server = new KillableServer({ program, url, key, state: `${files}/state`, config: `${files}/insula.yaml` });
    await server.start();
    box = await Sandbox.create({ ...scope, name: 'main', timeout: 1_800_000, ports: [3000], networkPolicy: { allow: { 'api.site.test': set(), 'slow.site.test': set() } } });
    [{ user: mine }] = await brokers();
    other = await Sandbox.create({ ...scope, name: 'other', timeout: 1_800_000, networkPolicy: { allow: { 'slow.site.test': set('of-another') } } });
  }, limit);
  after(async () => {
    await server?.end();
    for (const each of open) {
      each.close();
      each.closeAllConnections?.();
    }
    await rm(files, { recursive: true, force: true });
  }, limit);

  test('rules of a create hold before the first command', limit, async () => {
    assert.equal(JSON.parse(await out('curl -s https://api.site.test/v1')).authorization, secret);
  });

  test('a broker that is killed ends what it carries, and the next request has another one', limit, async () => {
    await allow({ 'api.site.test': set(), 'slow.site.test': set() });
    const others = (await brokers()).filter((each) => each.user !== mine);
    assert.equal(others.length, 1);
    await begin('curl -sN https://slow.site.test/other > /tmp/slow; echo $? >> /tmp/slow', other);
    await eventually(() => waiting.has('/other'), 'the other sandbox has asked');
    for (let i = 0; i < 11; ++i) {
      const before_it = await broker(mine);
      await begin(`curl -sN https://slow.site.test/${i} > /tmp/slow${i}; echo $? >> /tmp/slow${i}`);
      await eventually(async () => await out(`cat /tmp/slow${i}`) === 'first\n', 'the answer has begun');
      process.kill(before_it, 'SIGKILL');
      // The very next one, however soon it comes.
      assert.equal(JSON.parse(await out(`curl -s --max-time 60 https://api.site.test/after${i}`) || '{}').authorization, secret, `after ${i + 1}`);
      assert.match(await eventually(async () => /\n\d+\n$/.test(await out(`cat /tmp/slow${i}`)) && out(`cat /tmp/slow${i}`), 'the client sees the end'), /^first\n[1-9]\d*\n$/);
      assert.notEqual(await broker(mine), before_it);
    }
    // Neither do new rules wait for as long as a broker is let rest by then.
    for (let i = 0; i < 3; ++i) {
      process.kill(await broker(mine), 'SIGKILL');
      await allow({ 'api.site.test': set(`${secret}${i}`), 'slow.site.test': set() });
      assert.equal(JSON.parse(await out('curl -s https://api.site.test/')).authorization, `${secret}${i}`);
    }
    const { figures } = await network();
    assert.equal(figures.request_rules.length, 2);
    const api = figures.request_rules.find((each) => each.target === 'api.site.test');
    assert.ok(api.requests >= 1 && api.last_status === 200, JSON.stringify(api));
    assert.ok(figures.connections >= 22 && figures.bytes_in > 0, JSON.stringify(figures));
    // The other sandbox has had nothing of all that.
    assert.deepEqual((await brokers()).filter((each) => each.user !== mine), others);
    waiting.get('/other')();
    assert.equal(await eventually(async () => /\n\d+\n$/.test(await run(other)('cat /tmp/slow')) && run(other)('cat /tmp/slow'), 'the other one ends'), 'first\nlast\n0\n');
  });

  test('a gateway that is killed: requests pass with the next one', limit, async () => {
    await allow({ 'api.site.test': set() });
    for (let i = 0; i < 3; ++i) {
      const [{ pid }] = await processes_of_gateway();
      process.kill(pid, 'SIGKILL');
      // A gateway that has not heard yet what a sandbox may reach refuses all that it asks for.
      await eventually(async () => (await out(`curl -s --max-time 60 https://api.site.test/gateway${i}`)).includes(secret), 'requests pass');
      await eventually(async () => (await run(other)(`curl -s -o /dev/null -w '%{http_code}' --max-time 2 https://slow.site.test/gateway${i}`)).startsWith('200'), 'those of the other pass');
    }
  });
  /** Its words do not say its state directory, its parent's do. */
  async function processes_of_gateway() {
    const spawners = (await processes('insula-spawner', server.state)).map((each) => each.pid);
    const all = [];
    for (const pid of (await readdir('/proc')).filter((each) => /^\d+$/.test(each))) {
      const words = await readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '');
      const parent = Number((await readFile(`/proc/${pid}/stat`, 'latin1').catch(() => '')).split(') ')[1]?.split(' ')[1]);
      if (/^insula-gateway/.test(words) && (words.includes(server.state) || spawners.includes(parent))) all.push({ pid: Number(pid) });
    }
    assert.equal(all.length, 1);
    return all;
  }

  test('a site without a good certificate has nothing of a request', limit, async () => {
    await allow({ 'wrong.site.test': set(), 'expired.site.test': set(), 'self.site.test': set(), 'to-self.site.test': [{ forwardURL: 'https://self.site.test/x' }] });
    for (const [name, why] of [['wrong', /mismatch/i], ['expired', /expired/], ['self', /self.signed/], ['to-self', /self.signed/]])
      for (const version of ['--http1.1', '--http2']) {
        const said = await status(`${version} -d some https://${name}.site.test/`);
        assert.match(said, /^502 .*certificate of [a-z]+\.site\.test is not good/);
        assert.match(said, why);
      }
    // Each has its answer, however late what the client sends comes.
    const codes = await out(`for i in $(seq 100); do curl -sS --http2 -d some -o /dev/null -w '%{http_code}\\n' https://self.site.test/; done | sort | uniq -c`);
    assert.match(codes, /^ *100 502\n$/);
    assert.equal(bad_bytes, 0);
  });

  test('a target that hangs has no request any more once the client has lost its patience', limit, async () => {
    await allow({ 'hangs.site.test': set(), 'to-hangs.site.test': [{ forwardURL: 'https://hangs.site.test' }] });
    for (const name of ['hangs', 'to-hangs'])
      for (const version of ['--http1.1', '--http2']) {
        const before_it = hangs;
        assert.match(await out(`curl -s ${version} --max-time 1 https://${name}.site.test/; echo $?`), /^28\n/);
        assert.equal(hangs, before_it + 1);
        await eventually(() => ended_hangs === hangs, 'the site sees the end');
      }
  });

  test('heads and interim answers without an end are 502, and cost no memory', limit, async () => {
    await allow({ 'headers1.site.test': set(), 'interim1.site.test': set(), 'interim.site.test': set(), 'api.site.test': set() });
    for (const name of ['headers1', 'interim1', 'interim']) {
      assert.match(await status(`--max-time 60 https://${name}.site.test/`), new RegExp(`^502 ${name}\\.site\\.test: .`));
      assert.match(await status('https://api.site.test/'), /^200/);
    }
    const { most } = await memory_of(await broker(mine));
    assert.ok(most < most_of_broker, `${most}`);
  });

  test('addresses that nothing inside may reach are 502, by a rule or by a forward', limit, async () => {
    const names = ['metadata', 'home', 'node', 'else'];
    await allow(Object.fromEntries([
      ...names.map((each) => [`${each}.site.test`, set()]), ...names.map((each) => [`to-${each}.site.test`, [{ forwardURL: `https://${each}.site.test` }]]),
      ['to-address.site.test', [{ forwardURL: 'https://api.site.test:8781' }]],
    ]));
    for (const name of names.flatMap((each) => [each, `to-${each}`])) {
      const said = await status(`--max-time 30 https://${name}.site.test/`);
      assert.match(said, /^502 \w+\.site\.test: /, name);
      assert.match(said, name.endsWith('else') ? /leads nowhere/ : /refused/, name);
    }
    assert.match(await status('https://to-address.site.test/'), /^502 api\.site\.test: there is nobody/);
  });

  test('a forward to its own name reaches the site, once', limit, async () => {
    await allow({ 'loop.site.test': [{ forwardURL: 'https://loop.site.test/again' }], 'a.site.test': [{ forwardURL: 'https://b.site.test/of-a' }], 'b.site.test': [{ forwardURL: 'https://a.site.test/of-b' }] });
    heard.length = 0;
    assert.equal(JSON.parse(await out('curl -s https://loop.site.test/x')).path, '/again/x');
    assert.equal(JSON.parse(await out('curl -s https://a.site.test/x')).path, '/of-a/x');
    assert.deepEqual(heard, ['loop/again/x', 'b/of-a/x']);
  });

  test('a forward to a preview that asks again ends', limit, async () => {
    await allow({ 'round.site.test': [{ forwardURL: 'https://front.site.test' }] });
    await box.writeFiles([{
      path: '/tmp/round.py', content: Buffer.from(`
import http.server, ssl, urllib.request, urllib.error
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 1024
class Round(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            with urllib.request.urlopen('https://round.site.test/', timeout=60) as said: code, text = said.status, said.read()
        except urllib.error.HTTPError as said: code, text = said.code, said.read()
        except Exception as why: code, text = 500, str(why).encode()
        self.send_response(code); self.send_header('content-length', str(len(text))); self.end_headers(); self.wfile.write(text)
    def log_message(self, *words): pass
Server(('', 3000), Round).serve_forever()
`),
    }]);
    const serving = await box.runCommand({ cmd: 'python3', args: ['/tmp/round.py'], detached: true });
    assert.match(await out('for i in $(seq 200); do (echo > /dev/tcp/127.0.0.1/3000) 2>/dev/null && echo up && break; sleep 0.05; done'), /up/);
    front_requests = 0;
    const said = await status('--max-time 120 https://round.site.test/');
    assert.match(said, /^5\d\d /, said);
    assert.ok(front_requests > 1 && front_requests < 2000, `${front_requests}`);
    await serving.kill('SIGKILL');
    await allow({ 'api.site.test': set() });
    assert.match(await status('https://api.site.test/'), /^200/);
  });

  test('10,000 connections at once are answered or refused, and the next request passes', limit, async () => {
    await allow({ 'api.site.test': set() });
    await box.writeFiles([{
      path: '/tmp/flood.py', content: Buffer.from(`
import asyncio, collections, ssl
context = ssl.create_default_context()
told = collections.Counter()
async def one(all_there):
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection('api.site.test', 443, ssl=context, ssl_handshake_timeout=90), 100)
    except asyncio.TimeoutError: told['hangs'] += 1; writer = None
    except Exception as why: told['refused'] += 1; writer = None
    all_there.count += 1
    if all_there.count == 10000: all_there.set()
    await all_there.wait()
    if writer is None: return
    try:
        writer.write(b'GET /flood HTTP/1.1\\r\\nHost: api.site.test\\r\\n\\r\\n')
        await writer.drain()
        line = await asyncio.wait_for(reader.readline(), 60)
        told[line.split()[1].decode() if line else 'ended'] += 1
    except asyncio.TimeoutError: told['hangs'] += 1
    except Exception as why: told['reset'] += 1
    writer.close()
async def main():
    all_there = asyncio.Event()
    all_there.count = 0
    await asyncio.gather(*(one(all_there) for _ in range(10000)))
    print(dict(told))
asyncio.run(main())
`),
    }]);
    const pid = await broker(mine);
    const said = (await out('python3 /tmp/flood.py')).replaceAll("'", '"');
    const told = JSON.parse(said);
    assert.equal(Object.values(told).reduce((sum, each) => sum + each), 10_000, said);
    assert.ok(!told.hangs && told['200'] > 1000, said);
    assert.ok(Object.keys(told).every((each) => ['200', '502', '503', 'refused', 'ended', 'reset'].includes(each)), said);
    assert.ok((await memory_of(pid)).most < 256 * MiB); // It is still there.
    assert.match(await status('https://api.site.test/'), /^200/);
  });

  test('a client has 2,000 requests answered, a hundred at once, over one connection', limit, async () => {
    await allow({ 'api.site.test': set() });
    assert.match(await out(`seq 2000 | sed 's|.*|url=https://api.site.test/&\\noutput=/dev/null|' > /tmp/many
      curl -sv --http2 -Z --parallel-max 100 -w '%{http_code}\\n' -K /tmp/many 2> /tmp/many.said | sort | uniq -c; grep -c 'Connected to' /tmp/many.said; rm /tmp/many*`), /^ *2000 200\n1\n$/);
  });

  test('large bodies go both ways through little memory', limit, async () => {
    process.kill(await broker(mine), 'SIGKILL'); // The next one has had no flood.
    await allow({ 'large.site.test': set(), 'upload.site.test': set() });
    for (const version of ['--http1.1', '--http2']) {
      assert.equal(await out(`curl -sS ${version} https://large.site.test/ | wc -c`), `${1024 * MiB}\n`);
      assert.equal(await out(`head -c ${256 * MiB} /dev/zero | curl -sS ${version} -T - https://upload.site.test/`), `${256 * MiB}\n`);
    }
    const { most } = await memory_of(await broker(mine));
    assert.ok(most < most_of_broker, `${most}`);
    const [download, upload] = (await network()).figures.request_rules;
    assert.ok(download.bytes_in >= 2 * 1024 * MiB && upload.bytes_out >= 2 * 256 * MiB, JSON.stringify([download, upload]));
  });

  test('a client that does not read its answer keeps the rest at its site', limit, async () => {
    await allow({ 'large.site.test': set() });
    for (const version of ['--http1.1', '--http2']) {
      downloaded = 0;
      const reading = await begin(`curl -sS ${version} --limit-rate 1k https://large.site.test/ > /dev/null`);
      let before_it = -1;
      await eventually(async () => {
        const same = downloaded > 0 && downloaded === before_it;
        before_it = downloaded;
        await delay(300);
        return same;
      }, 'nothing more comes');
      assert.ok(downloaded < 32 * MiB, `${downloaded}`);
      await reading.kill('SIGKILL');
    }
    assert.ok((await memory_of(await broker(mine))).most < most_of_broker);
  });

  test('events pass as they come', limit, async () => {
    await allow({ 'events.site.test': set() });
    for (const version of ['--http1.1', '--http2']) {
      const path = `/${version}`;
      await begin(`curl -sN ${version} https://events.site.test${path} > /tmp/events${version}`);
      for (let i = 0; i < 5; ++i) {
        await eventually(async () => (await out(`cat /tmp/events${version}`)).endsWith(`data: ${i}\n\n`), `event ${i}`);
        events.get(path)();
      }
    }
  });

  test('a WebSocket has its header set, and frames pass', limit, async () => {
    await allow({ 'socket.site.test': set() });
    const said = await out(`python3 - <<'END'
import base64, os, socket, ssl
way = ssl.create_default_context().wrap_socket(socket.create_connection(('socket.site.test', 443)), server_hostname='socket.site.test')
way.sendall(b'GET /ws HTTP/1.1\\r\\nHost: socket.site.test\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: ' + base64.b64encode(os.urandom(16)) + b'\\r\\n\\r\\n')
head = b''
while b'\\r\\n\\r\\n' not in head: head += way.recv(4096)
mask, text = os.urandom(4), b'hello'
way.sendall(bytes([0x81, 0x80 | len(text)]) + mask + bytes(c ^ mask[i % 4] for i, c in enumerate(text)))
back = head.split(b'\\r\\n\\r\\n', 1)[1]
while True:
    some = way.recv(4096)
    if not some: break
    back += some
print(head.split()[1].decode(), back[2:].decode(), head.decode().lower().count('x-saw: bearer'))
END`);
    assert.equal(said, '101 hello 1\n');
  });

  test('trailers and continuations pass', limit, async () => {
    await allow({ 'grpc.site.test': set(), 'upload.site.test': set() });
    const said = await out(`node -e '
      const session = require("http2").connect("https://grpc.site.test");
      const call = session.request({ ":method": "POST", ":path": "/s/m", "content-type": "application/grpc", te: "trailers" });
      let body = "";
      call.on("response", (head) => { console.log(head[":status"], head["content-type"]); });
      call.on("data", (some) => { body += some; });
      call.on("trailers", (all) => { console.log(all["grpc-status"], all["grpc-message"]); });
      call.on("end", () => { console.log(body); session.close(); });
      call.write("some ", () => { call.end("more"); });
    '`, { env: { NODE_EXTRA_CA_CERTS: '/usr/local/share/ca-certificates/vercel-proxy-ca.pem' } });
    assert.equal(said, '200 application/grpc\n0 te=trailers\nsome more\n');
    const with_expect = `curl -sv --http1.1 -H 'Expect: 100-continue' --expect100-timeout 60 --data-binary @/tmp/body`;
    assert.match(await out(`head -c 3000000 /dev/zero > /tmp/body; ${with_expect} https://upload.site.test/yes 2>&1`), /HTTP\/1\.1 100 [\s\S]*HTTP\/1\.1 200[\s\S]*\n3000000\n/);
    assert.match(await out(`${with_expect} https://upload.site.test/no 2>&1`), /HTTP\/1\.1 413[\s\S]*too much/);
  });

  test('rules that came while it was stopped hold in the next session', limit, async () => {
    const others = (await brokers()).filter((each) => each.user !== mine);
    await box.stop();
    const changed = await fetch(`${url}/v2/sandboxes/main?projectId=prj_test`, {
      method: 'PATCH', headers: { authorization: `Bearer ${key}` }, body: JSON.stringify({ networkPolicy: { allow: { 'api.site.test': set('while it was away') } } }),
    });
    assert.equal(changed.status, 200);
    await eventually(async () => !(await brokers()).some((each) => each.user === mine), 'its broker has ended');
    assert.equal(JSON.parse(await out('curl -s https://api.site.test/')).authorization, 'while it was away');
    const [{ user: of_other }] = others;
    ({ user: mine } = (await brokers()).find((each) => each.user !== of_other));
  });

  test('root inside sees no header, no key and no broker', limit, async () => {
    await allow({ 'quiet.site.test': set() });
    await begin('exec curl -sN --http2 https://quiet.site.test/1 > /tmp/quiet1');
    await begin('exec curl -sN --http1.1 https://quiet.site.test/2 > /tmp/quiet2');
    await eventually(() => waiting.has('/1') && waiting.has('/2'), 'the site has both');
    const pid = await broker(mine);
    await box.writeFiles([{
      path: '/tmp/probe.py', content: Buffer.from(`
import ctypes, errno, glob, os, re, signal, socket, sys
wanted = [b'sees-edisni-ydobon-taht-yek'[::-1], b'YEK ETAVIRP'[::-1]]
own = str(os.getpid())
found, read = [], 0
def words(pid):
    try: return open('/proc/%s/cmdline' % pid, 'rb').read()
    except OSError: return b''
for pid in filter(str.isdigit, os.listdir('/proc')):
    if 'broker' in words(pid).decode('latin1') or 'gateway' in words(pid).decode('latin1'): found.append('process ' + pid)
    for name in ('environ', 'cmdline'):
        try: text = open('/proc/%s/%s' % (pid, name), 'rb').read()
        except OSError: continue
        if any(each in text for each in wanted): found.append(pid + ' ' + name)
    if pid == own: continue
    try:
        maps, mem = open('/proc/%s/maps' % pid).read(), open('/proc/%s/mem' % pid, 'rb', 0)
    except OSError: continue
    for line in maps.splitlines():
        begin, end = (int(each, 16) for each in line.split()[0].split('-'))
        if line.split()[1][0] != 'r' or end - begin > 1 << 28 or '[v' in line: continue
        try:
            mem.seek(begin)
            text = mem.read(end - begin)
        except (OSError, ValueError, OverflowError): continue
        read += len(text)
        for each in wanted[:1]: # Programs have the other words in their constants.
            if each in text: found.append('memory of ' + pid + ' ' + words(pid).decode('latin1'))
for folder, folders, names in os.walk('/'):
    folders[:] = [each for each in folders if os.path.join(folder, each) not in ('/proc', '/sys', '/dev') and not os.path.islink(os.path.join(folder, each))]
    for name in names:
        path = os.path.join(folder, name)
        try:
            if os.path.islink(path) or not os.path.isfile(path): continue
            is_new = os.stat(path).st_ctime > float(sys.argv[2])
            if not is_new or os.stat(path).st_size > 1 << 28: continue
            text = open(path, 'rb').read()
        except OSError: continue
        if any(each in text for each in wanted): found.append(path)
def fails(what):
    try: what()
    except OSError as why: return errno.errorcode[why.errno]
    except Exception as why: return type(why).__name__
    return 'works'
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *rest):
    if getattr(libc, name)(*rest) == -1: raise OSError(ctypes.get_errno(), name)
broker = int(sys.argv[1])
print('uid', os.getuid(), 'memory', read > 1 << 20)
print('found', found)
print('packets', fails(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x300)))
print('raw', fails(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)))
print('signal', fails(lambda: os.kill(broker, 0)))
print('trace', fails(lambda: call('ptrace', 16, broker, 0, 0)))
print('peek', fails(lambda: open('/proc/%d/mem' % broker, 'rb')))
print('net', fails(lambda: call('setns', os.open('/proc/1/ns/net', os.O_RDONLY), 0)))
print('unix', [line.split()[7] for line in open('/proc/net/unix') if len(line.split()) > 7 and line[0] != 'N'])
with open('/proc/net/tcp') as text: print('others', [line.split()[1] for line in text if ':' in line and line.split()[1].startswith(('0202', '0102'))])
`),
    }]);
    const made = (await out('stat -c %Y /proc/1')).trim();
    for (const sudo of [false, true]) {
      // Something of the same user's, so that there is something to read.
      const said = await out(`sleep 300 & python3 /tmp/probe.py ${pid} ${Number(made) - 5}; kill $!`, { sudo });
      const told = Object.fromEntries(said.trim().split('\n').map((line) => [line.split(' ')[0], line.slice(line.indexOf(' ') + 1)]));
      assert.match(told.uid, sudo ? /^0 memory True$/ : /^[1-9]\d* memory True$/, said);
      assert.equal(told.found, '[]', said);
      for (const what of ['packets', 'raw', 'net']) assert.match(told[what], /^(EPERM|EACCES|EAFNOSUPPORT|EPROTONOSUPPORT)$/, said);
      for (const what of ['signal', 'trace', 'peek']) assert.match(told[what], /^(EPERM|ESRCH|ENOENT|EACCES|ENOSYS)$/, said);
      assert.equal(told.unix, '[]', said);
      assert.equal(told.others, '[]', said);
    }
    assert.equal(await broker(mine), pid);
    waiting.get('/1')();
    waiting.get('/2')();
    const digest = createHash('sha256').update(secret).digest('hex');
    for (const each of ['1', '2']) assert.equal(await eventually(async () => (await out(`cat /tmp/quiet${each}`)).length > 60 && out(`cat /tmp/quiet${each}`), 'it ends'), `quiet\n${digest}`);
  });

  test('an authority that is always there is there without a rule', limit, async () => {
    await server.end();
    await writeFile(`${files}/insula.yaml`, `${(await readFile(`${files}/insula.yaml`, 'utf8')).replace('network: {', 'network: {ca: always, ')}`);
    await server.start();
    const fresh = await Sandbox.create({ ...scope, name: 'fresh', timeout: 300_000 });
    assert.match(await run(fresh)('cat /usr/local/share/ca-certificates/vercel-proxy-ca.pem'), /BEGIN CERTIFICATE/);
    const before_it = (await brokers()).length;
    const before_rules = await run(fresh)('cat /usr/local/share/ca-certificates/vercel-proxy-ca.pem');
    await fresh.update({ networkPolicy: { allow: { 'api.site.test': set() } } });
    assert.equal(JSON.parse(await run(fresh)('curl -s https://api.site.test/')).authorization, secret);
    assert.equal((await brokers()).length, before_it + 1);
    assert.equal(await run(fresh)('cat /usr/local/share/ca-certificates/vercel-proxy-ca.pem'), before_rules);
    await fresh.delete();
  });
});
