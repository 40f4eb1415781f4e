// The helper of @vercel/sandbox for proxies, unmodified, behind the module that leads it to this server: it takes the tokens that
// this server signs, and no others. INSULA_URL is the server, INSULA_PROGRAM the program, INSULA_RUN_STATE its state directory.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';

import { defineSandboxProxy } from '@vercel/sandbox';

const { INSULA_URL: url, INSULA_PROGRAM: program, INSULA_RUN_STATE: state } = process.env;
assert.ok(url && program && state, 'INSULA_URL, INSULA_PROGRAM or INSULA_RUN_STATE is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 60_000 };
const audience = 'https://proxy.example/forward';

async function token({ ...more } = {}) {
  const words = { audience, team: 'team_test', project: 'prj_test', sandbox: 'sbx_test', state, ...more };
  const { stdout } = await promisify(execFile)(program, ['oidc', 'token', ...Object.entries(words).flatMap(([name, value]) => [`--${name}`, value])]);
  return stdout.trim();
}

const handled = [];
const proxy = defineSandboxProxy(
  async (request, meta) => {
    handled.push({ url: request.url, method: request.method, body: await request.text(), meta, fields: [...request.headers.keys()] });
    return new Response('handled');
  },
  (request, error) => new Response(error.message, { status: 403 }),
);

/** What a sandbox's request to https://api.example.com/v1/items?a=1 is when it has been forwarded. */
function forwarded(signed, fields = {}) {
  return new Request(`${audience}/v1/items?a=1`, {
    method: 'POST', body: 'the body',
    headers: {
      'vercel-forwarded-host': 'api.example.com', 'vercel-forwarded-scheme': 'https', 'vercel-forwarded-port': '443',
      'vercel-forwarded-path': '/v1/items?a=1', 'vercel-sandbox-oidc-token': signed, ...fields,
    },
  });
}

describe('a proxy of a sandbox', () => {
  test('takes a token of this server', limit, async () => {
    const answer = await proxy(forwarded(await token({ name: 'my box' })));
    assert.equal(await answer.text(), 'handled');
    const [got] = handled.splice(0);
    assert.equal(got.url, 'https://api.example.com/v1/items?a=1');
    assert.equal(got.method, 'POST');
    assert.equal(got.body, 'the body');
    assert.deepEqual(got.meta, { host: 'proxy.example', teamId: 'team_test', projectId: 'prj_test', sandboxId: 'sbx_test', sandboxName: 'my box' });
    assert.ok(!got.fields.some((name) => name.startsWith('vercel-')));
  });
  test('does without the name of the sandbox', limit, async () => {
    assert.equal((await proxy(forwarded(await token()))).status, 200);
    assert.equal(handled.splice(0)[0].meta.sandboxName, 'sbx_test');
  });
  test('takes no token for another proxy', limit, async () => {
    for (const other of ['https://proxy.example', 'https://proxy.example/other', 'https://other.example/forward']) {
      assert.equal((await proxy(forwarded(await token({ audience: other })))).status, 403);
    }
    assert.equal(handled.length, 0);
  });
  test('takes no token that was changed', limit, async () => {
    const [header, payload, signature] = (await token()).split('.');
    const claims = JSON.parse(Buffer.from(payload, 'base64url'));
    const other = Buffer.from(JSON.stringify({ ...claims, sandbox_id: 'sbx_other' })).toString('base64url');
    for (const changed of [`${header}.${other}.${signature}`, `${header}.${payload}.${signature.slice(0, -8)}AAAAAAAA`, `${header}.${payload}.`]) {
      assert.equal((await proxy(forwarded(changed))).status, 403);
    }
    assert.equal(handled.length, 0);
  });
  test('finds the keys where the issuer says', limit, async () => {
    const about = await (await fetch(`${url}/oidc/insula/.well-known/openid-configuration`)).json();
    assert.equal(about.issuer, 'https://oidc.vercel.com/insula');
    const led = await (await fetch(about.jwks_uri)).json(); // By the module.
    assert.deepEqual(led, await (await fetch(`${url}/oidc/insula/.well-known/jwks`)).json());
    assert.deepEqual(Object.keys(led.keys[0]).sort(), ['alg', 'e', 'kid', 'kty', 'n', 'use']);
  });
});
