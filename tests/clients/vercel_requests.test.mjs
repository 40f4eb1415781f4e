// Rules about requests with the SDK of the Vercel Sandbox service and its helper for proxies, both unmodified, against sites
// behind TLS on this machine: INSULA_PROGRAM is the server, INSULA_URL says where it is to be. Node.js is started with
// insula-vercel.mjs. Cases have the numbers of the features that they show.
import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Readable } from 'node:stream';

import { Sandbox, defineSandboxProxy } from '@vercel/sandbox';

import { KillableServer } from './killable_server.mjs';
import { make_certificates, serve_names, serve_sites } from './tls_sites.mjs';

const { INSULA_PROGRAM: program, INSULA_URL: url } = process.env;
assert.ok(program && url, 'INSULA_PROGRAM or INSULA_URL is not set');

const key = 'key-of-this-test';
const scope = { token: key, teamId: 'team_test', projectId: 'prj_test' };
const limit = { timeout: 120_000 };
const secret = 'Bearer key-that-nobody-inside-sees';
const names_at = '127.29.0.1', sites_at = '127.29.0.2'; // Loopback addresses that nothing else has.
const refused = (text) => (why) => {
  assert.equal(why.response?.status, 400, why.message);
  assert.match(why.json?.error?.message, text);
  return true;
};

describe('requests with rules', () => {
  let server, files, names, sites, box;
  const seen = []; // What the proxy was told.
  const out = async (script) => {
    const done = await box.runCommand('sh', ['-c', script]);
    return `${await done.stdout()}${await done.stderr()}`;
  };
  const proxy = defineSandboxProxy(async (request, meta) => {
    seen.push({ url: request.url, method: request.method, body: await request.text(), meta, fields: [...request.headers.keys()] });
    return new Response(`proxied ${request.method}`, { headers: { 'x-proxied': 'yes' } });
  });

  /** api. says what it has heard; slow. says a line and another one when it is let; proxy. is the helper's. */
  let let_go;
  async function answer(request, response) {
    const host = request.authority ?? request.headers.host;
    if (host.startsWith('proxy.')) {
      const fields = Object.entries(request.headers).filter(([name]) => !name.startsWith(':'));
      const body = ['GET', 'HEAD'].includes(request.method) ? undefined : Readable.toWeb(request);
      const said = await proxy(new Request(`https://${host}${request.url}`, { method: request.method, headers: fields, body, duplex: 'half' }));
      response.writeHead(said.status, Object.fromEntries(said.headers));
      return response.end(Buffer.from(await said.arrayBuffer()));
    }
    if (host.startsWith('slow.')) {
      response.write('first\n');
      await new Promise((resume) => { let_go = resume; });
      return response.end('last\n');
    }
    response.end(JSON.stringify({ method: request.method, path: request.url, authorization: request.headers.authorization ?? null, other: request.headers['x-other'] ?? null }));
  }

  before(async () => {
    files = await mkdtemp('/var/tmp/insula-requests-');
    names = await serve_names(names_at, () => sites_at);
    sites = await serve_sites(sites_at, await make_certificates(files), answer);
    await writeFile(`${files}/insula.yaml`, `network: {allow_private: [${sites_at}/32], resolvers: [${names_at}], ca_file: ${files}/authority.pem}\n`);
    server = new KillableServer({ program, url, key, state: `${files}/state`, config: `${files}/insula.yaml` });
    await server.start();
    box = await Sandbox.create({
      ...scope, name: 'main', timeout: 600_000, networkPolicy: {
        allow: {
          'api.site.test': [{ transform: [{ headers: { authorization: secret } }] }],
          'plain.site.test': [],
        },
      },
    });
  }, limit);
  after(async () => {
    await server?.end();
    names?.close();
    sites?.close();
    sites?.closeAllConnections?.();
    await rm(files, { recursive: true, force: true });
  }, limit);

  test('V049 V164 V165 a header that nobody inside sees', limit, async () => {
    for (const version of ['--http1.1', '--http2'])
      assert.equal(JSON.parse(await out(`curl -s ${version} https://api.site.test/v1`)).authorization, secret);
    // What the client has said itself does not matter.
    assert.equal(JSON.parse(await out('curl -s -H "Authorization: mine" https://api.site.test/v1')).authorization, secret);
    // Python's and Node.js' own clients believe the sandbox's authority.
    assert.equal(JSON.parse(await out('python3 -c "import urllib.request as u;print(u.urlopen(\'https://api.site.test/p\').read().decode())"')).path, '/p');
    const found = await out('env; grep -rs nobody-inside /vercel /tmp /etc /root /home /var/log /usr/local /run 2>/dev/null; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr "\\0" "\\n"');
    assert.doesNotMatch(found.replaceAll(/^.*grep -rs.*$/gm, ''), /nobody-inside/);
  });
  test('V165 values are never told, and what is told cannot be written back', limit, async () => {
    const again = await Sandbox.get({ ...scope, name: 'main' });
    const policy = again.networkPolicy;
    assert.equal(policy.allow['api.site.test'][0].transform[0].headers.authorization, '<redacted>');
    await assert.rejects(again.update({ networkPolicy: policy }), refused(/<redacted>/));
    for (const path of ['/v2/sandboxes/main?projectId=prj_test', '/v2/sandboxes?project=prj_test', '/v2/sandboxes/sessions?project=prj_test'])
      assert.doesNotMatch(await (await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${key}` } })).text(), /nobody-inside|sealed/);
  });
  test('V163 a name without rules is end to end', limit, async () => {
    assert.match(await out('curl -skv https://plain.site.test/ 2>&1'), /issuer: CN=Authority of this test/);
    assert.match(await out('curl -sv https://api.site.test/ 2>&1'), /issuer: .*[Ss]andbox/);
    assert.match(await out('curl -s https://plain.site.test/ 2>&1; echo $?'), /60\n$/); // Its authority is none of the sandbox's.
  });
  test('V101 V167 what does not match passes as it is, and new rules hold at once', limit, async () => {
    const rules = (match) => ({ allow: { 'api.site.test': [{ match, transform: [{ headers: { 'x-other': 'set' } }] }] } });
    const other = async (words) => JSON.parse(await out(`curl -s ${words}`)).other;
    for (const [match, yes, no] of [
      [{ path: { startsWith: '/a' } }, 'https://api.site.test/abc', 'https://api.site.test/b'],
      [{ path: { exact: '/a' } }, 'https://api.site.test/a?x', 'https://api.site.test/ab'],
      [{ path: { regex: '^/v[0-9]+/' } }, 'https://api.site.test/v12/x', 'https://api.site.test/vx/'],
      [{ method: ['POST', 'PUT'] }, '-X PUT https://api.site.test/', 'https://api.site.test/'],
      [{ queryString: [{ key: { exact: 'q' }, value: { startsWith: 'a b' } }] }, '"https://api.site.test/?q=a%20bc"', '"https://api.site.test/?q=b"'],
      [{ headers: [{ key: { exact: 'x-a' } }] }, '-H "X-A: 1" https://api.site.test/', 'https://api.site.test/'],
    ]) {
      await box.update({ networkPolicy: rules(match) });
      assert.equal(await other(yes), 'set', JSON.stringify(match));
      assert.equal(await other(no), null, JSON.stringify(match));
    }
  });
  test('V166 V185 V186 V187 requests go to a proxy, which believes the token', limit, async () => {
    await box.update({ networkPolicy: { allow: { 'else.site.test': [{ forwardURL: 'https://proxy.site.test/base' }] } } });
    for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])
      assert.equal(await out(`curl -s -X ${method} ${['GET', 'DELETE', 'OPTIONS'].includes(method) ? '' : '-d the-body'} -H 'vercel-sandbox-oidc-token: forged' -H 'vercel-forwarded-host: forged' 'https://else.site.test/v1/items?a=1'`), `proxied ${method}`);
    assert.match(await out('curl -sI https://else.site.test/'), /x-proxied: yes/);
    assert.deepEqual(seen.map((each) => each.method), ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'HEAD']);
    const [, got] = seen;
    assert.equal(got.url, 'https://else.site.test/v1/items?a=1');
    assert.equal(got.body, 'the-body');
    assert.ok(!got.fields.some((name) => name.startsWith('vercel-')));
    const { host, projectId, sandboxId, sandboxName, teamId } = got.meta;
    assert.deepEqual([host, teamId, projectId, sandboxId, sandboxName], ['proxy.site.test', 'team_test', 'prj_test', box.currentSession().sessionId, 'main']);
  });
  test('an answer of its own, and what is wrong in a rule', limit, async () => {
    await box.update({ networkPolicy: { allow: { 'none.site.test': [{ response: { statusCode: 403, body: 'no\n', contentType: 'text/plain', headers: { 'x-why': 'rule' } } }] } } });
    assert.match(await out('curl -si https://none.site.test/'), /403[\s\S]*x-why: rule[\s\S]*no\n/);
    for (const [rule, why] of [
      [{ forwardURL: 'http://a.test' }, /https/],
      [{ forwardURL: 'https://a.test/?q' }, /query/],
      [{ match: { path: { regex: '(' } }, transform: [{ headers: { a: 'b' } }] }, /regular expression/],
      [{ transform: [{ headers: { 'transfer-encoding': 'b' } }] }, /cannot be set/],
    ]) {
      const body = JSON.stringify({ networkPolicy: { allow: { 'a.test': [rule] } } });
      const answer = await fetch(`${url}/v2/sandboxes/main?projectId=prj_test`, { method: 'PATCH', body, headers: { authorization: `Bearer ${key}` } });
      assert.equal(answer.status, 400);
      assert.match((await answer.json()).error.message, why);
    }
  });
  test('the authority survives a stop, and a fork has its own', limit, async () => {
    const rule = { allow: { 'api.site.test': [{ transform: [{ headers: { authorization: secret } }] }] } };
    await box.update({ networkPolicy: rule });
    const authority = 'cat /usr/local/share/ca-certificates/vercel-proxy-ca.pem';
    const first = await out(authority);
    assert.match(first, /BEGIN CERTIFICATE/);
    assert.equal(first, await out('cat /etc/pki/ca-trust/source/anchors/vercel-proxy-ca.pem'));
    assert.match(await out('grep -c "BEGIN CERTIFICATE" $SSL_CERT_FILE; echo $NODE_USE_SYSTEM_CA'), /^\d{2,}\n1\n$/);
    await box.stop();
    assert.equal(JSON.parse(await out('curl -s https://api.site.test/again')).authorization, secret);
    assert.equal(await out(authority), first);
    await box.stop();
    const copy = await Sandbox.fork({ ...scope, sourceSandbox: 'main', name: 'copy', timeout: 300_000 });
    const run = async (script) => (await copy.runCommand('sh', ['-c', script])).stdout();
    assert.equal(JSON.parse(await run('curl -s https://api.site.test/copy')).authorization, secret);
    assert.notEqual(await run(authority), first);
    assert.equal(await run('grep -c "Begin of the authority" /etc/ssl/certs/ca-certificates.crt'), '1\n');
    await copy.delete();
  });
  test('what is open goes on over a restart of the server, and ends within a second of new rules', limit, async () => {
    await box.update({ networkPolicy: { allow: { 'slow.site.test': [{ transform: [{ headers: { a: 'b' } }] }] } } });
    const reading = await box.runCommand({ cmd: 'sh', args: ['-c', 'curl -sN https://slow.site.test/ > /tmp/slow; echo $? >> /tmp/slow'], detached: true });
    for (let attempt = 0; attempt < 400 && !let_go; ++attempt) await delay(50);
    await server.end('SIGTERM');
    await server.start();
    let_go();
    box = await Sandbox.get({ ...scope, name: 'main' });
    for (let attempt = 0; attempt < 400 && !/\n0\n$/.test(await out('cat /tmp/slow')); ++attempt) await delay(50);
    assert.equal(await out('cat /tmp/slow'), 'first\nlast\n0\n');
    assert.ok(reading);
    let_go = undefined;
    await box.runCommand({ cmd: 'sh', args: ['-c', 'curl -sN https://slow.site.test/ > /tmp/cut; echo $? >> /tmp/cut'], detached: true });
    for (let attempt = 0; attempt < 400 && !let_go; ++attempt) await delay(50);
    await box.update({ networkPolicy: { allow: { 'slow.site.test': [{ transform: [{ headers: { a: 'c' } }] }] } } });
    for (let attempt = 0; attempt < 400 && !/\n[1-9]\d*\n$/.test(await out('cat /tmp/cut')); ++attempt) await delay(50);
    assert.match(await out('cat /tmp/cut'), /^first\n[1-9]\d*\n$/);
    let_go();
  });
});
