// The SDK of the Vercel Sandbox service, unmodified, with no module in front of it: its own option `fetch` says where the server
// is. INSULA_URL is that place, INSULA_API_KEY the key, INSULA_DOCUMENT the page that shows how.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';

import { Sandbox } from '@vercel/sandbox';

const key = process.env.INSULA_API_KEY;
assert.ok(process.env.INSULA_URL && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 120_000 };

const here = (url, options) => {
  const { hostname, pathname, search } = new URL(url);
  const headers = new Headers(options?.headers);
  if (hostname.endsWith('.vercel.run')) headers.set('x-forwarded-host', hostname);
  return fetch(new URL(pathname + search, process.env.INSULA_URL), { ...options, headers });
};

const scope = { token: key, teamId: 'team_test', projectId: 'prj_fetch', fetch: here };

describe('the option fetch', () => {
  let box;
  before(async () => { box = await Sandbox.create({ ...scope, name: 'by-fetch', ports: [3000], timeout: 120_000 }); }, limit);
  after(async () => { await box?.delete(); }, limit);

  test('is as the documentation shows it', async () => {
    const shown = await readFile(process.env.INSULA_DOCUMENT, 'utf8');
    assert.ok(shown.includes(`const here = ${here};\n`));
  });
  test('without it, nothing leads here', async () => {
    // No request is sent anywhere: only where it would go is looked at.
    let asked;
    await assert.rejects(Sandbox.get({ ...scope, name: 'by-fetch', fetch: async (url) => { asked = url; return new Response('{}', { status: 404 }); } }));
    assert.match(asked, /^https:\/\/vercel\.com\/api\/v2\/sandboxes\/by-fetch\?/);
  });
  test('commands and files', limit, async () => {
    const done = await box.runCommand('sh', ['-c', 'echo text > file; cat file; exit 3']);
    assert.equal(done.exitCode, 3);
    assert.equal(await done.stdout(), 'text\n');
    await box.writeFiles([{ path: 'other', content: Buffer.from([0, 255]) }]);
    assert.deepEqual([...(await box.readFileToBuffer({ path: 'other' }))], [0, 255]);
    const chunks = [];
    for await (const chunk of await box.readFile({ path: 'file' })) chunks.push(chunk);
    assert.equal(Buffer.concat(chunks).toString(), 'text\n');
    assert.equal(await box.readFile({ path: 'nothing' }), null);
  });
  test('the domain of a port', limit, async () => {
    const script = "require('node:http').createServer((asked, answer) => answer.end(asked.method + ' ' + asked.url)).listen(3000, () => console.log('listening'))";
    const server = await box.runCommand({ cmd: 'node', args: ['-e', script], detached: true });
    for await (const each of server.logs()) if (each.data.includes('listening')) break;
    const answer = await here(`${box.domain(3000)}/page?a=1`, { method: 'PUT', body: 'x' });
    assert.equal(await answer.text(), 'PUT /page?a=1');
    await server.kill();
  });
  test('lists, by pages, and get', limit, async () => {
    const other = await Sandbox.create({ ...scope, name: 'other', timeout: 60_000 });
    const seen = [];
    for await (const each of await Sandbox.list({ ...scope, sortBy: 'name', sortOrder: 'asc', limit: 1 })) seen.push(each.name);
    assert.deepEqual(seen, ['by-fetch', 'other']);
    await other.delete();
    const same = await Sandbox.get({ ...scope, name: 'by-fetch' });
    assert.equal(await (await same.runCommand('cat', ['file'])).stdout(), 'text\n');
    assert.deepEqual((await same.listSessions()).sessions.map((each) => each.id), [box.currentSession().sessionId]);
  });
});
