// The page at /v1/openapi in a real browser, against a running Insula: INSULA_URL says where, INSULA_API_KEY with which key.
// INSULA_CHROMIUM is the browser, INSULA_PICTURE where a picture of the page is left.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';

import { chromium } from 'playwright-core';

const url = process.env.INSULA_URL;
const key = process.env.INSULA_API_KEY;
assert.ok(url && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 90_000 };
const headers = { Authorization: `Bearer ${key}` };

/// Where there is much, Swagger UI shows what is near the window alone. Goes down the page until `done` is true; false: it never was.
async function goDown(page, done) {
  await page.evaluate(() => window.scrollTo(0, 0));
  for (;;) {
    await page.evaluate(() => new Promise((resume) => { requestAnimationFrame(() => requestAnimationFrame(resume)); }));
    if (await done()) return true;
    const moved = await page.evaluate(() => {
      const before = window.scrollY;
      window.scrollBy(0, window.innerHeight / 2);
      return window.scrollY > before;
    });
    if (!moved) return false;
  }
}

/// What Swagger UI shows of one operation.
class Operation {
  constructor(page, id) {
    this.page = page;
    this.block = page.locator(`.opblock[id$="-${id}"]`); // Its group is before that.
  }

  async open() {
    if (!(await this.block.count())) await goDown(this.page, async () => (await this.block.count()) > 0);
    await this.block.locator('.opblock-summary-control').click();
    await this.block.locator('.execute').waitFor();
  }

  async fill(name, value) {
    await this.block.locator(`tr[data-param-name="${name}"] input`).fill(value);
  }

  /// Sends the request and reads what is then shown: the status, and everything with it.
  async execute() {
    const answer = this.block.locator('.live-responses-table tr.response').first();
    const before = (await answer.count()) ? await answer.innerText() : '';
    await this.block.locator('.execute').click();
    await answer.waitFor();
    while ((await answer.innerText()) === before) await new Promise((resume) => setTimeout(resume, 20)); // Each has an id of its own.
    const status = await answer.locator('.response-col_status').innerText();
    return { status: Number.parseInt(status, 10), text: await answer.innerText(), row: answer };
  }

  async close() {
    await this.block.locator('.opblock-summary-control').click();
  }

  async try(fields = {}) {
    await this.open();
    for (const [name, value] of Object.entries(fields)) await this.fill(name, value);
    return await this.execute();
  }
}

describe('the page of the API', () => {
  let browser;
  let page;
  const asked = [];
  const complaints = [];

  async function open(address) {
    const opened = await browser.newPage({ viewport: { width: 1280, height: 1000 }, acceptDownloads: true });
    opened.setDefaultTimeout(30_000);
    opened.on('request', (request) => asked.push(request.url()));
    opened.on('pageerror', (error) => complaints.push(String(error)));
    opened.on('console', (message) => {
      if (['error', 'warning'].includes(message.type())) complaints.push(message.text());
    });
    const answer = await opened.goto(address);
    assert.equal(answer.status(), 200);
    await opened.locator('.opblock').first().waitFor();
    return opened;
  }

  const operation = (id) => new Operation(page, id);

  before(async () => {
    browser = await chromium.launch({
      executablePath: process.env.INSULA_CHROMIUM ?? '/usr/bin/chromium',
      args: ['--no-sandbox'], // Chromium refuses root otherwise.
    });
    page = await open(`${url}/v1/openapi?token=${encodeURIComponent(key)}`);
  }, limit);
  after(async () => await browser?.close(), limit);

  test('it is one page, with the key nowhere in it', limit, async () => {
    for (const path of ['/v1/openapi', '/v1/openapi.html']) {
      const answer = await fetch(`${url}${path}?token=${key}`);
      assert.equal(answer.status, 200);
      assert.equal(answer.headers.get('content-type'), 'text/html; charset=utf-8');
      const html = await answer.text();
      assert.ok(html.startsWith('<!doctype html>'));
      assert.ok(!html.includes(key));
    }
    assert.equal((await fetch(`${url}/v1/openapi`)).status, 401);
  });

  test('without the key it asks for that, and is there then', limit, async () => {
    const context = await browser.newContext();
    const asking = await context.newPage();
    asking.setDefaultTimeout(30_000);
    const answer = await asking.goto(`${url}/v1/openapi#/Files`);
    assert.equal(answer.status(), 401);
    const field = asking.getByLabel('API key');
    await field.waitFor();
    await field.fill('not the key');
    await asking.keyboard.press('Enter');
    await asking.getByText('This is not the key.').waitFor();
    await field.fill(key);
    await asking.keyboard.press('Enter');
    await asking.locator('.opblock').first().waitFor();
    assert.equal(asking.url(), `${url}/v1/openapi#/Files`);
    // Signed in, the address alone leads there: typed, or from a bookmark.
    const typed = await context.newPage();
    typed.setDefaultTimeout(30_000);
    await typed.goto(`${url}/v1/openapi.html`);
    await typed.locator('.opblock').first().waitFor();
    // And back to the sandboxes.
    await typed.locator('.way-back').getByRole('link', { name: 'Sandboxes' }).click();
    await typed.getByRole('button', { name: 'New sandbox' }).waitFor();
    await typed.getByRole('link', { name: 'API' }).click();
    await typed.locator('.opblock').first().waitFor();
    // A browser that keeps no cookies is told so, and is not sent round in a circle.
    const keeps_none = await browser.newContext();
    await keeps_none.route('**/console/sign-in', (route) => route.fulfill({ status: 204 }));
    const lost = await keeps_none.newPage();
    await lost.goto(`${url}/v1/openapi`);
    await lost.getByLabel('API key').fill(key);
    await lost.keyboard.press('Enter');
    await lost.getByText('This browser did not keep the sign-in. Are cookies allowed?').waitFor();
    await keeps_none.close();
    await context.close();
  });

  test('it is dark where everything is', limit, async () => {
    const brightness = () =>
      page.evaluate(() => {
        const of = (colour) => colour.match(/[\d.]+/g).slice(0, 3).reduce((sum, each) => sum + Number(each), 0) / 3;
        const paper = getComputedStyle(document.body).backgroundColor;
        const ink = getComputedStyle(document.querySelector('.opblock-summary-path')).color;
        return { paper: of(paper), ink: of(ink) };
      });
    const light = await brightness();
    await page.emulateMedia({ colorScheme: 'dark' });
    await page.waitForFunction(() => document.documentElement.classList.contains('dark-mode'));
    const dark = await brightness();
    await page.emulateMedia({ colorScheme: 'light' });
    await page.waitForFunction(() => !document.documentElement.classList.contains('dark-mode'));
    assert.ok(light.paper > 200 && light.ink < 100, JSON.stringify(light));
    assert.ok(dark.paper < 60 && dark.ink > 150, JSON.stringify(dark));
  });

  test('operations stand in groups, those of OpenSandbox too', limit, async () => {
    const groups = [];
    await goDown(page, async () => {
      groups.push(...await page.locator('.opblock-tag').evaluateAll((all) => all.map((each) => each.dataset.tag)));
      return false;
    });
    for (const each of ['Sandboxes', 'Files', 'OpenSandbox: lifecycle', 'OpenSandbox: commands']) assert.ok(groups.includes(each), each);
    assert.ok(!groups.includes('default'));
  });

  test('every operation of the document is shown', limit, async () => {
    const document = await (await fetch(`${url}/v1/openapi.json`, { headers })).json();
    const ids = Object.values(document.paths).flatMap((path) => Object.values(path).map((row) => row.operationId));
    assert.ok(ids.length >= 8);
    const shown = new Set();
    await goDown(page, async () => {
      for (const id of await page.locator('.opblock').evaluateAll((blocks) => blocks.map((block) => block.id))) shown.add(id);
      return false;
    });
    assert.deepEqual([...shown].map((id) => id.slice(id.lastIndexOf('-') + 1)).sort(), ids.sort());
  });

  test('the key does not stay in the address', limit, () => {
    assert.equal(page.url(), `${url}/v1/openapi`);
  });

  test('a sandbox is made, used and deleted from it', limit, async () => {
    const made = await operation('createSandbox').try();
    assert.equal(made.status, 200, made.text);
    const [id] = made.text.match(/\b[a-z2-7]{26}\b/);
    await operation('createSandbox').close();

    const ran = await operation('execCommand').try({ id }); // The command that the document proposes: echo hello.
    assert.equal(ran.status, 200, ran.text);
    assert.match(ran.text, new RegExp(`event: stdout\\s+data: ${btoa('hello\n')}`));
    assert.match(ran.text, /event: exit\s+data: {"exit_code":0}/);
    if (process.env.INSULA_PICTURE) {
      const table = await operation('execCommand').block.locator('.live-responses-table').boundingBox();
      const scrolled = await page.evaluate(() => window.scrollY);
      const height = Math.ceil(table.y + table.height + scrolled);
      await page.screenshot({ path: process.env.INSULA_PICTURE, fullPage: true, clip: { x: 0, y: 0, width: 1280, height } });
    }
    await operation('execCommand').close();

    const content = Buffer.from([0, 255, 10, 13, 128, 65]);
    const write = operation('writeFile');
    await write.open();
    await write.fill('id', id);
    await write.block.locator('input[type=file]').setInputFiles({ name: 'any.bin', mimeType: '', buffer: content });
    const written = await write.execute();
    assert.equal(written.status, 200, written.text);
    await write.close();

    const read = await operation('readFile').try({ id });
    assert.equal(read.status, 200, read.text);
    const download = page.waitForEvent('download');
    await read.row.getByText('Download file').click();
    assert.deepEqual(await readFile(await (await download).path()), content);
    await operation('readFile').close();

    const deleted = await operation('deleteSandbox').try({ id });
    assert.equal(deleted.status, 204, deleted.text);
  });

  test('it asked nobody but its node, and nothing in it went wrong', limit, () => {
    const own = (address) => new URL(address).origin === new URL(url).origin || /^(data|blob):/.test(address);
    assert.ok(asked.length >= 6);
    assert.deepEqual(asked.filter((address) => !own(address)), []);
    assert.deepEqual(complaints, []);
  });

  test('it may load nothing from elsewhere, and run nothing but its own scripts', limit, async () => {
    const refused = await page.evaluate(async () => {
      const broken = [];
      document.addEventListener('securitypolicyviolation', (event) => broken.push(event.effectiveDirective));
      const added = (name, more) => document.body.append(Object.assign(document.createElement(name), more));
      added('script', { textContent: 'window.smuggled = true' });
      added('img', { src: 'http://127.0.0.2:9/x.png' });
      await fetch('http://127.0.0.2:9/').catch(() => {});
      while (broken.length < 3) await new Promise((resume) => setTimeout(resume, 20));
      return { broken: broken.sort(), smuggled: window.smuggled };
    });
    assert.deepEqual(refused, { broken: ['connect-src', 'img-src', 'script-src-elem'], smuggled: undefined });
  });

  test('without the key it can be told one later', limit, async () => {
    page = await open(`${url}/v1/openapi?token=${encodeURIComponent(key)}`);
    await page.locator('.authorize').first().click();
    const dialog = page.locator('.dialog-ux');
    const bearer = dialog.locator('.auth-container').filter({ hasText: 'BearerAuth' });
    await bearer.getByRole('button', { name: 'Remove authorization' }).click();
    await bearer.locator('.btn-done').click();
    const refused = await operation('createSandbox').try();
    assert.equal(refused.status, 401, refused.text);
    await page.locator('.authorize').first().click();
    await bearer.locator('input').fill(key);
    await bearer.getByRole('button', { name: 'Apply credentials' }).click();
    await bearer.locator('.btn-done').click();
    const made = await operation('createSandbox').execute();
    assert.equal(made.status, 200, made.text);
  });
});
