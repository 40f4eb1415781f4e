// Network policies with the SDK of the Vercel Sandbox service, unmodified: what a sandbox reaches of the sites of
// tests/e2e/network_sites.py. INSULA_URL says where the server is, INSULA_API_KEY with which key. Node.js is started with
// insula-vercel.mjs, in the network of tests/support/on_internet. Cases have the numbers of the features that they show.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { Sandbox } from '@vercel/sandbox';

const key = process.env.INSULA_API_KEY;
assert.ok(process.env.INSULA_URL && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 120_000 };
const scope = { token: key, teamId: 'team_test', projectId: 'prj_policies' };
const a = '203.0.113.2', b = '203.0.113.3';

describe('network policies', () => {
  let box;
  before(async () => { box = await Sandbox.create({ ...scope, name: 'reaching', timeout: 600_000, networkPolicy: 'deny-all' }); }, limit);
  after(async () => { await box?.delete(); }, limit);

  const curl = async (...words) => (await box.runCommand('curl', ['-sk', '-m', '20', ...words])).stdout();
  const reaches = (host) => curl(`https://${host}/`);
  const refuses = async (host) => assert.equal(await curl(`https://${host}/`) + await curl(`http://${host}/`), '', host);
  const found = async (name) => (await box.runCommand('getent', ['ahostsv4', name])).exitCode === 0;

  test('V049 V158 nothing, names included, from the first moment on', limit, async () => {
    for (const each of ['a.example', 'b.example', a]) await refuses(each);
    assert.equal(await found('a.example'), false);
  });
  test('V101 V157 everything, as soon as it is said', limit, async () => {
    await box.update({ networkPolicy: 'allow-all' });
    assert.equal(await reaches('a.example'), `site ${a} tls a.example\n`);
    assert.equal(await reaches('b.example'), `site ${b} tls b.example\n`);
    assert.equal(await curl(`http://${b}/`), `site ${b} host ${b}\n`);
  });
  test('V113 V157 V158 the same by the older call', limit, async () => {
    await box.updateNetworkPolicy('deny-all');
    await refuses('a.example');
    await box.updateNetworkPolicy('allow-all');
    assert.equal(await reaches('a.example'), `site ${a} tls a.example\n`);
  });
  test('V159 V160 V163 a name, and not those below it, by the name that TLS says', limit, async () => {
    await box.update({ networkPolicy: { allow: ['a.example'] } });
    assert.equal(await reaches('a.example'), `site ${a} tls a.example\n`);
    assert.equal(await curl('http://a.example/'), `site ${a} host a.example\n`);
    for (const each of ['deep.sub.a.example', 'b.example', a]) await refuses(each);
    assert.equal(await curl('--connect-to', 'b.example:443:a.example:443', 'https://b.example/'), '');
    // The certificate is the site's own.
    const said = await box.runCommand('sh', ['-c', 'echo | openssl s_client -connect a.example:443 -servername a.example 2>/dev/null | openssl x509 -noout -issuer']);
    assert.doesNotMatch(await said.stdout(), /[Ss]andbox/);
    assert.match(await said.stdout(), /issuer/);
  });
  test('V161 a star in the middle is one label', limit, async () => {
    await box.update({ networkPolicy: { allow: ['deep.*.a.example'] } });
    assert.equal(await reaches('deep.sub.a.example'), `site ${a} tls deep.sub.a.example\n`);
    await refuses('a.example');
    await box.update({ networkPolicy: { allow: ['deep.*.example'] } });
    await refuses('deep.sub.a.example');
  });
  test('V162 a star in front is any number of labels, and never none', limit, async () => {
    await box.update({ networkPolicy: { allow: ['*.a.example'] } });
    assert.equal(await reaches('deep.sub.a.example'), `site ${a} tls deep.sub.a.example\n`);
    await refuses('a.example');
    await box.update({ networkPolicy: { allow: ['*.example'] } });
    assert.equal(await reaches('a.example'), `site ${a} tls a.example\n`);
    assert.equal(await reaches('deep.sub.a.example'), `site ${a} tls deep.sub.a.example\n`);
  });
  test('V164 a name with no rules is a name', limit, async () => {
    await box.update({ networkPolicy: { allow: { 'a.example': [] } } });
    assert.equal(await reaches('a.example'), `site ${a} tls a.example\n`);
    await refuses('b.example');
  });
  test('V168 addresses that are allowed need no name', limit, async () => {
    await box.update({ networkPolicy: { allow: ['a.example'], subnets: { allow: [`${b}/32`] } } });
    assert.equal(await curl(`http://${b}/`), `site ${b} host ${b}\n`);
    assert.equal(await reaches('a.example'), `site ${a} tls a.example\n`);
    assert.equal(await curl(`http://${a}/`), '');
  });
  test('V169 addresses that are denied are so by every name', limit, async () => {
    await box.update({ networkPolicy: { allow: ['*.example'], subnets: { allow: ['203.0.113.0/24'], deny: [`${b}/32`] } } });
    assert.equal(await reaches('a.example'), `site ${a} tls a.example\n`);
    for (const each of ['b.example', b]) await refuses(each);
  });
});
