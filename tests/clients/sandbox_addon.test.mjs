// The terminal addon of Cloudflare's Sandbox SDK for xterm.js, unmodified, in a real browser against a running Insula: INSULA_URL says
// where, INSULA_API_KEY with which key. The addon sends no headers, so the page has signed in to the console before.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { launch_browser, patience_ms, screen_of, type_line, until_shown, Watch, Wire } from './browser.mjs';

const key = process.env.INSULA_API_KEY;
assert.ok(process.env.INSULA_URL && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 3 * patience_ms };
const modules = new URL('./node_modules/', import.meta.url).pathname;

const html = `<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="/test/xterm.css">
<div id="terminal" style="width: 640px; height: 400px"></div>
<script src="/test/xterm.js"></script>
<script type="module">
  import { SandboxAddon } from '/test/addon.js';
  window.states = [];
  window.told = [];
  const terminal = new Terminal({ cols: 80, rows: 24 });
  const addon = new SandboxAddon({
    getWebSocketUrl: ({ sandboxId, sessionId, origin }) =>
      origin + '/v1/sandbox/' + sandboxId + '/pty?cols=' + terminal.cols + '&rows=' + terminal.rows +
      (sessionId ? '&session=' + sessionId : ''),
    onStateChange: (state, error) => {
      window.states.push(state);
      if (error) window.told.push(error.message);
    },
  });
  terminal.loadAddon(addon);
  terminal.open(document.getElementById('terminal'));
  Object.assign(window, { terminal, addon });
</script>`;

describe('the SandboxAddon', () => {
  let browser;
  let wire;
  let page;
  let id;
  const watch = new Watch();

  const state = async (wanted) =>
    await page.waitForFunction((name) => window.addon?.state === name, wanted, { timeout: patience_ms });
  const states = async () => await page.evaluate(() => window.states.length);
  /// Since there were so many states: it has lost the connection, and has one again.
  const came_back = async (since) =>
    await page.waitForFunction(
      (from) => {
        const lost = window.states.indexOf('disconnected', from);
        return lost >= 0 && window.states.includes('connected', lost);
      },
      since,
      { timeout: patience_ms },
    );
  const told = async (words) =>
    await page.waitForFunction((text) => window.told.some((each) => each.includes(text)), words, { timeout: patience_ms });

  before(async () => {
    wire = await Wire.to(process.env.INSULA_URL);
    const made = await fetch(`${wire.url}/v1/sandbox`, { method: 'POST', headers: { Authorization: `Bearer ${key}` } });
    ({ id } = await made.json());
    browser = await launch_browser();
    page = await browser.newPage();
    page.setDefaultTimeout(patience_ms);
    watch.page(page);
    await page.route(`${wire.url}/test/**`, async (route) => {
      const file = {
        '/test/addon.js': { path: `${modules}@cloudflare/sandbox/dist/xterm/index.js`, contentType: 'text/javascript' },
        '/test/xterm.js': { path: `${modules}@xterm/xterm/lib/xterm.js`, contentType: 'text/javascript' },
        '/test/xterm.css': { path: `${modules}@xterm/xterm/css/xterm.css`, contentType: 'text/css' },
      }[new URL(route.request().url()).pathname];
      await route.fulfill(file ?? { status: 404 });
    });
    // A document that the node itself has sent: browsers keep others from local networks.
    await page.goto(`${wire.url}/health`);
    await page.setContent(html);
    await page.waitForFunction(() => window.addon);
  }, limit);
  after(async () => {
    await browser?.close();
    await fetch(`${wire.url}/v1/sandbox/${id}`, { method: 'DELETE', headers: { Authorization: `Bearer ${key}` } });
    await wire?.close();
  }, limit);

  test('without the key it does not connect', limit, async () => {
    await page.evaluate((sandboxId) => window.addon.connect({ sandboxId }), id);
    await told('WebSocket error');
    await page.evaluate(() => window.addon.disconnect());
    await state('disconnected');
  });

  test('it connects, and what is typed is what the shell does', limit, async () => {
    const status = await page.evaluate(
      async (body) => (await fetch('/console/sign-in', { method: 'POST', body })).status,
      key,
    );
    assert.equal(status, 204);
    await page.evaluate((sandboxId) => window.addon.connect({ sandboxId }), id);
    await state('connected');
    await page.locator('.xterm-helper-textarea').focus();
    await type_line(page, 'echo "it is $((6 * 7))"; tty; echo $TERM');
    await until_shown(page, /^it is 42\n\/dev\/pts\/\d+\nxterm-256color$/m);
  });

  test('control characters interrupt, suspend and end', limit, async () => {
    // Not before the shell has given the terminal away: what it finds typed it may take for its own.
    await type_line(page, 'echo now; cat');
    await until_shown(page, /^now$/m);
    await type_line(page, 'said twice');
    await until_shown(page, /said twice\nsaid twice/);
    await page.keyboard.press('Control+Z');
    await until_shown(page, /Stopped\s+cat/);
    await type_line(page, 'fg');
    await until_shown(page, /\$ fg\ncat$/m);
    await type_line(page, 'and again');
    await until_shown(page, /and again\nand again/);
    await page.keyboard.press('Control+C');
    await type_line(page, 'echo "ended with $?"');
    await until_shown(page, 'ended with 130');
  });

  test('it resizes', limit, async () => {
    await type_line(page, 'stty size');
    await until_shown(page, /^24 80$/m);
    await page.evaluate(() => window.terminal.resize(100, 30));
    await type_line(page, 'stty size');
    await until_shown(page, /^30 100$/m);
  });

  test('when the connection is killed it comes back to the same screen', limit, async () => {
    await type_line(page, 'clear; kept=still; PS1="> "; seq -s " " 1 20');
    await until_shown(page, /19 20\n>$/m);
    const before = (await screen_of(page)).filter((line) => line);
    const since = await states();
    wire.cut();
    await came_back(since);
    await until_shown(page, /19 20\n>$/m);
    assert.deepEqual((await screen_of(page)).filter((line) => line), before);
    await type_line(page, 'echo $kept here');
    await until_shown(page, /^still here$/m);
  });

  test('what was printed while nobody was there is there afterwards', limit, async () => {
    await type_line(page, 'clear; mkfifo go gone; read -r word < go; echo "$word alone" | tee gone');
    await page.evaluate(() => window.addon.disconnect());
    await state('disconnected');
    // The command waits for the first, and has printed by the time of the second.
    const spoken = await fetch(`${wire.url}/v1/sandbox/${id}/exec`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${key}` },
      body: JSON.stringify({ argv: ['bash', '-c', 'until [ -p go ]; do sleep 0.1; done; echo printed > go; cat gone'] }),
    });
    assert.match(await spoken.text(), /event: exit\ndata: {"exit_code":0}/);
    await page.evaluate((sandboxId) => window.addon.connect({ sandboxId }), id);
    await state('connected');
    await until_shown(page, /^printed alone$/m);
  });

  test('the end of the shell is told with its code, and the next connection gets a new one', limit, async () => {
    const since = await states();
    await type_line(page, 'exit 7');
    await told('Session exited with code 7');
    await came_back(since);
    await type_line(page, 'echo "kept is <$kept>"');
    await until_shown(page, /^kept is <>$/m);
    await type_line(page, 'kill -9 $$');
    await told('Session exited with code 137 (SIGKILL)');
  });

  test('it asked nobody but its node, and nothing in it went wrong', limit, () => watch.check(wire.url));
});
