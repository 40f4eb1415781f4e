// Previews in a real browser, of a real development server in a sandbox: Vite, unmodified, with hot reload. INSULA_URL says where Insula
// is, INSULA_API_KEY with which key.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';

import { launch_browser, patience_ms, Watch } from './browser.mjs';

const key = process.env.INSULA_API_KEY;
const node = process.env.INSULA_URL;
assert.ok(node && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 3 * patience_ms };
const here = new URL('.', import.meta.url).pathname;
const port = 5173;

/// The folders of a package and of all that it needs, as they are installed.
function with_all_it_needs(name) {
  const installed = JSON.parse(readFileSync(`${here}package-lock.json`, 'utf8')).packages;
  const found = new Set();
  const add = (each) => {
    const folder = `node_modules/${each}`;
    if (found.has(folder) || !existsSync(here + folder)) return;
    found.add(folder);
    const { dependencies, optionalDependencies } = installed[folder];
    Object.keys({ ...dependencies, ...optionalDependencies }).forEach(add);
  };
  add(name);
  return [...found];
}

const site = {
  'index.html': `<!doctype html><title>site</title><h1 id="at"></h1><p id="times"></p><script type="module" src="/main.js"></script>`,
  'main.js': `import { words } from './words.js';
const show = (text) => { document.getElementById('at').textContent = text; };
window.loads = (window.loads ?? 0) + 1;
show(words);
import.meta.hot.accept('./words.js', (fresh) => show(fresh.words));`,
  'words.js': `export const words = 'first words';`,
};

describe('previews', () => {
  let browser;
  let page;
  let id;
  let serving;
  const watch = new Watch();
  const sockets = [];

  const call = (method, path, body) =>
    fetch(node + path, { method, headers: { Authorization: `Bearer ${key}` }, body, duplex: 'half' });
  const write = async (name, content) => {
    const answer = await call('PUT', `/v1/sandbox/${id}/file/workspace/${name}`, content);
    assert.equal(answer.status, 200, await answer.text());
  };
  const run = async (...argv) => {
    const answer = await call('POST', `/v1/sandbox/${id}/exec`, JSON.stringify({ argv }));
    const text = await answer.text();
    assert.match(text, /"exit_code":0/, text);
  };
  const link = async () => {
    const answer = await call('POST', `/v1/sandbox/${id}/preview`, JSON.stringify({ port }));
    assert.equal(answer.status, 200);
    return await answer.json();
  };
  const shows = (text) =>
    page.waitForFunction((wanted) => document.getElementById('at')?.textContent === wanted, text, { timeout: patience_ms });

  /// Vite's watcher misses what changes just after another change, so what is not seen is saved once more.
  const until_shown = async (words) => {
    for (let tries = 30; tries > 0; --tries) {
      await run('bash', '-c', `echo "export const words = '${words}';" >/workspace/words.js`);
      const wait = page.waitForFunction((wanted) => document.getElementById('at').textContent === wanted, words, { timeout: 2_000 });
      if (await wait.then(() => true, () => false)) return;
    }
    assert.fail(`the page does not come to show ${words}`);
  };

  before(async () => {
    id = (await (await call('POST', '/v1/sandbox')).json()).id;
    // Node.js and Vite, in pieces that a file may have.
    const interpreter = readdirSync(`${here}node_modules`).find((each) => each.startsWith('node-linux-'));
    const folders = [`node_modules/${interpreter}/bin/node`, ...with_all_it_needs('vite')];
    const packed = execFileSync('tar', ['--create', '--use-compress-program=gzip -1', `--directory=${here}`, ...folders], {
      maxBuffer: 1 << 30,
    });
    const piece = 16 << 20;
    for (let at = 0, number = 100; at < packed.length; at += piece, ++number)
      await write(`pieces/${number}`, packed.subarray(at, at + piece));
    await run('bash', '-c', `cat /workspace/pieces/* | tar --extract --gzip --directory=/workspace && mv /workspace/node_modules/${interpreter}/bin/node /workspace/node`);
    for (const [name, content] of Object.entries(site)) await write(name, content);
    serving = await call(
      'POST',
      `/v1/sandbox/${id}/exec`,
      JSON.stringify({ argv: ['/workspace/node', 'node_modules/vite/bin/vite.js', '--port', `${port}`, '--strictPort'], cwd: '/workspace' }),
    );
    const ready = await call('GET', `/v1/sandbox/${id}/port/${port}/ready?timeout_ms=${patience_ms}`);
    assert.equal(ready.status, 200, await ready.text());
    browser = await launch_browser();
    page = await browser.newPage();
    page.on('websocket', (socket) => sockets.push(socket));
    watch.page(page);
  }, limit);
  after(async () => {
    await browser?.close();
    await serving?.body?.cancel();
    if (id) await call('DELETE', `/v1/sandbox/${id}`);
  }, limit);

  test('nobody gets in without the key or a token', limit, async () => {
    const { url } = await link();
    const plain = url.replace(/\?.*/, '');
    assert.match(plain, new RegExp(`^http://${port}-${id}\\.localhost:\\d+/$`));
    const context = await browser.newContext();
    const stranger = await context.newPage();
    assert.equal((await stranger.goto(plain)).status(), 401);
    assert.match(await stranger.textContent('body'), /needs the node's API key or a token/);
    assert.equal((await stranger.goto(`${plain}?insula_preview_token=99999999999.aaaa`)).status(), 401);
    await context.close();
  });

  test('the token leads to the page, and is not seen again', limit, async () => {
    const { url, token } = await link();
    const answer = await page.goto(url);
    assert.equal(answer.status(), 200);
    await shows('first words');
    assert.equal(page.url(), url.replace(/\?.*/, ''));
    assert.equal(await page.evaluate((secret) => document.cookie.includes(secret), token), false);
  });

  test('what is changed in the sandbox is changed in the page, which is not loaded again', limit, async () => {
    const socket = sockets.at(-1);
    assert.equal(new URL(socket.url()).host, new URL(page.url()).host);
    await page.evaluate(() => { window.kept = 'kept'; });
    for (const words of ['second words', 'third words']) await until_shown(words);
    assert.deepEqual(await page.evaluate(() => [window.kept, window.loads]), ['kept', 1]);
    assert.equal(socket.isClosed(), false);
  });

  test('a page that was not hot enough is loaded again', limit, async () => {
    await write('index.html', site['index.html'].replace('<title>site', '<title>other'));
    await page.waitForFunction(() => document.title === 'other', undefined, { timeout: patience_ms });
    await shows('third words');
    assert.equal(await page.evaluate(() => window.kept), undefined);
  });

  test('by the path it is the same server, and a page there is nobody', limit, async () => {
    const answer = await call('GET', `/v1/sandbox/${id}/port/${port}/words.js`);
    assert.match(await answer.text(), /third words/);
    const { path } = await link();
    const context = await browser.newContext();
    const visitor = await context.newPage();
    const came = await visitor.goto(node + path);
    assert.equal(came.status(), 200);
    assert.match(came.headers()['content-security-policy'], /^sandbox /);
    assert.equal(await visitor.evaluate(() => window.origin), 'null');
    await context.close();
  });

  test('nobody but the node was asked, and nothing went wrong', limit, async () => {
    watch.check(page.url());
  });
});
