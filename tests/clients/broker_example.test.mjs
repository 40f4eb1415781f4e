// examples/broker.sh against a site behind TLS on this machine: INSULA_PROGRAM is the server, INSULA_URL says where it is to be,
// INSULA_EXAMPLE is the script.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createSecureServer } from 'node:http2';
import { after, before, describe, test } from 'node:test';

import { KillableServer } from './killable_server.mjs';

const { INSULA_EXAMPLE: example, INSULA_PROGRAM: program, INSULA_URL: url } = process.env;
assert.ok(example && program && url, 'INSULA_EXAMPLE, INSULA_PROGRAM or INSULA_URL is not set');

const key = 'key-of-this-test';
const limit = { timeout: 180_000 };
const secret = 'key-that-nobody-inside-sees';
const names_at = '127.29.1.1', site_at = '127.29.1.2'; // Loopback addresses that nothing else has.

/** Every name of site.test is at site_at; others are nowhere. */
function serve_names() {
  const socket = createSocket('udp4');
  socket.on('message', (asked, from) => {
    let end = 12;
    while (asked[end] !== 0) end += asked[end] + 1;
    const question = asked.subarray(12, end + 5);
    const is_known = asked.subarray(12, end).toString('latin1').endsWith('\x04site\x04test') && question.readUInt16BE(question.length - 4) === 1;
    const head = Buffer.from([asked[0], asked[1], 0x81, 0x80, 0, 1, 0, is_known ? 1 : 0, 0, 0, 0, 0]);
    const address = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, ...site_at.split('.').map(Number)]);
    socket.send(Buffer.concat([head, question, ...(is_known ? [address] : [])]), from.port, from.address);
  });
  return new Promise((resume) => { socket.bind(53, names_at, () => resume(socket)); });
}

/** An authority, whose certificate sandboxes believe as well, and a certificate for all names of site.test. */
function make_certificates(at) {
  const openssl = (...words) => execFileSync('openssl', words, { cwd: at, stdio: 'pipe' });
  const fresh = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
  openssl('req', '-x509', ...fresh, '-keyout', 'authority.key', '-out', 'authority.pem', '-subj', '/CN=Authority of this test');
  openssl('req', '-x509', ...fresh, '-keyout', 'site.key', '-out', 'site.pem', '-subj', '/CN=site.test', '-CA', 'authority.pem', '-CAkey', 'authority.key',
    '-addext', 'subjectAltName=DNS:*.site.test', '-addext', 'basicConstraints=critical,CA:FALSE');
}

describe('the example about keys', () => {
  let server, files, names, site;
  const heard = []; // What the site was told in the header.

  /** api. lets those in who have the key, and says nothing about it; echo. says it to the one who has sent it. */
  function answer(request, response) {
    const host = request.authority ?? request.headers.host;
    const said = request.headers['x-api-key'];
    heard.push(said);
    response.statusCode = said === secret ? 200 : 401;
    response.end(host.startsWith('echo.') ? `you have said ${said}\n` : 'as the status says\n');
  }

  const run = (...words) => new Promise((resume) => {
    const env = { ...process.env, INSULA_URL: url, SANDBOX_API_KEY: key, HEADER: 'X-Api-Key', VALUE: secret };
    execFile(example, words, { env, timeout: 150_000 }, (why, stdout, stderr) => { resume({ code: why ? why.code : 0, said: stdout, complained: stderr }); });
  });

  before(async () => {
    files = await mkdtemp('/var/tmp/insula-broker-example-');
    make_certificates(files);
    names = await serve_names();
    site = createSecureServer({ key: await readFile(`${files}/site.key`), cert: await readFile(`${files}/site.pem`), allowHTTP1: true }, answer);
    await new Promise((resume) => { site.listen(443, site_at, resume); });
    await writeFile(`${files}/insula.yaml`, [
      `network: {allow_private: [${site_at}/32], resolvers: [${names_at}]}`,
      `sandbox: {ca_file: ${files}/authority.pem}`, // The site is believed without a rule as well.
      '',
    ].join('\n'));
    server = new KillableServer({ program, url, key, state: `${files}/state`, config: `${files}/insula.yaml` });
    await server.start();
  }, limit);
  after(async () => {
    await server?.end();
    names?.close();
    site?.close();
    site?.closeAllConnections?.();
    await rm(files, { recursive: true, force: true });
  }, limit);

  test('a key is used, and is nowhere inside', limit, async () => {
    const { code, said, complained } = await run('https://api.site.test/v1');
    assert.equal(code, 0, said + complained);
    assert.match(said, /^Without a rule api\.site\.test answers 401\.$/m);
    assert.match(said, /^With the rule it answers 200\.$/m);
    assert.match(said, /^The server tells of the rule: "transform":\{"headerNames":\["x-api-key"\]\}$/m);
    assert.match(said, /^A program inside was answered: HTTP\/1\.1 200\b/m);
    for (const place of ['environments and command lines', 'memory of processes', 'files'])
      assert.match(said, new RegExp(`^${place}: [1-9]\\d* looked at, \\d+ KiB: the key is not there \\(the marker is\\)$`, 'm'));
    assert.match(said, /^what was sent and received: 1 looked at, \d+ KiB: the key is not there$/m);
    assert.match(said, /^packets: /m);
    assert.match(said, /^The key is nowhere in the sandbox\.$/m);
    assert.doesNotMatch(said + complained, new RegExp(secret));
    assert.deepEqual(heard, [undefined, secret, secret]);
  });
  test('it finds a key that is there: the server itself has told it', limit, async () => {
    const { code, said, complained } = await run('https://echo.site.test/');
    assert.equal(code, 1, said + complained);
    assert.match(said, /^memory of processes: .*IT IS THERE/m);
    assert.match(said, /^what was sent and received: .*IT IS THERE/m);
    assert.match(complained, /this has not shown that the key is nowhere/);
  });
  test('a key that the API does not take shows nothing, and no sandbox is left', limit, async () => {
    const { code, complained } = await run('https://api.site.test/v1', 'x-other', 'value');
    assert.equal(code, 1);
    assert.match(complained, /the API does not take the key/);
    const left = await fetch(`${url}/v1/sandboxes`, { headers: { authorization: `Bearer ${key}` } });
    assert.deepEqual((await left.json()).items, []);
  });
});
