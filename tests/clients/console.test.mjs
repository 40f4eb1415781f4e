// The console in a real browser, against a running Insula: INSULA_URL says where, INSULA_API_KEY with which key. INSULA_PICTURES is the
// folder where pictures of it are left.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';

import { launch_browser, patience_ms, screen_of, type_line, until_shown, Watch, Wire } from './browser.mjs';

const key = process.env.INSULA_API_KEY;
assert.ok(process.env.INSULA_URL && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 3 * patience_ms };
const run = promisify(execFile);

describe('the console', () => {
  let browser;
  let wire;
  let page;
  let id;
  const watch = new Watch();
  const headers = { Authorization: `Bearer ${key}` };

  const shows = (locator) => locator.waitFor({ state: 'visible' });
  const row_of = (which) => page.locator(`tr[data-id="${which}"]`);
  const rows = () => page.locator('#rows tr').evaluateAll((all) => all.map((each) => each.dataset.id));
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent);
  const connected = (where = page) => where.getByRole('status').filter({ hasText: /^Connected$/ }).waitFor();
  /// What a page has said about its terminals since it was loaded.
  const told = (where = page) => where.evaluate(() => window.told);
  /// It has lost the connection, with these words, and has one again, since it had said so many things.
  const came_back = (since, with_words = 'Disconnected', where = page) =>
    where.waitForFunction(
      ([from, begin]) => {
        const lost = window.told.findIndex((words, at) => at >= from && words.startsWith(begin));
        return lost >= 0 && window.told.includes('Connected', lost);
      },
      [since, with_words],
    );
  const call = (method, path, more) => fetch(wire.url + path, { method, headers, ...more });

  async function picture(name) {
    if (process.env.INSULA_PICTURES) await page.screenshot({ path: `${process.env.INSULA_PICTURES}/${name}.png` });
  }

  /// Presses Tab until something has the focus.
  async function tab_to(name) {
    for (let i = 0; i < 40; ++i) {
      if ((await focused()) === name) return;
      await page.keyboard.press('Tab');
    }
    assert.fail(`Tab does not lead to ${name}; it is at ${await focused()}`);
  }

  before(async () => {
    wire = await Wire.to(process.env.INSULA_URL);
    browser = await launch_browser();
    const context = await browser.newContext({ viewport: { width: 1180, height: 720 }, colorScheme: 'light' });
    page = await context.newPage();
    page.setDefaultTimeout(patience_ms);
    watch.page(page);
    // What the policy refuses is a bug of ours, in the test as well.
    await page.addInitScript(() =>
      addEventListener('securitypolicyviolation', (event) => console.error(`refused: ${event.effectiveDirective} ${event.blockedURI}`)),
    );
    await context.addInitScript(() => {
      window.told = [];
      addEventListener('DOMContentLoaded', () => {
        const state = document.getElementById('terminal-state');
        new MutationObserver(() => window.told.push(state.textContent)).observe(state, { childList: true });
      });
    });
    await page.goto(wire.url);
  }, limit);
  after(async () => {
    await browser?.close();
    await wire?.close();
  }, limit);

  test('it asks for the key, and takes no other', limit, async () => {
    const field = page.getByLabel('API key');
    await shows(field);
    assert.equal(await field.evaluate((each) => each === document.activeElement), true);
    await picture('console-sign-in');
    await page.keyboard.type('not the key');
    await page.keyboard.press('Enter');
    await shows(page.getByText('This is not the key.'));
    await page.keyboard.type(key); // Over the wrong one, which is selected.
    await page.keyboard.press('Enter');
    await shows(page.getByText('No sandbox is alive on this node.'));
  });

  test('the line that an empty list shows makes a sandbox, as it stands there', limit, async () => {
    const line = await page.locator('#line').innerText();
    const environment = { ...process.env, SANDBOX_API_KEY: key };
    const { stdout } = await run('bash', ['-c', line], { env: environment, timeout: patience_ms });
    assert.ok(stdout.includes(`data: ${btoa('hello\n')}`), stdout);
    await shows(row_of('hello'));
    await call('DELETE', '/v1/sandbox/hello');
    await row_of('hello').waitFor({ state: 'detached' });
    await shows(page.locator('#line'));
  });

  test('the key is kept nowhere', limit, async () => {
    const cookies = await page.context().cookies();
    assert.equal(cookies.length, 1);
    const [{ value, httpOnly, sameSite, path }] = cookies;
    assert.deepEqual({ httpOnly, sameSite, path }, { httpOnly: true, sameSite: 'Strict', path: '/' });
    assert.ok(!value.includes(key));
    const seen = await page.evaluate(() =>
      JSON.stringify([location.href, document.cookie, { ...localStorage }, { ...sessionStorage }, document.documentElement.outerHTML]),
    );
    assert.ok(!seen.includes(key));
    assert.ok(watch.asked.every((url) => !url.includes(key)));
  });

  test('the images of the node are listed, and one that may not be fetched is refused in words', limit, async () => {
    await shows(page.locator('tr[data-image="host"]').filter({ hasText: /python [\d.]+/ }));
    await page.getByLabel('From a registry').fill('debian:12');
    await page.getByRole('button', { name: 'Fetch' }).click();
    await shows(page.getByText('does not fetch the image docker.io/library/debian:12'));
    await page.getByRole('button', { name: 'Dismiss' }).click();
  });

  test('a sandbox is made, and the list says how it is', limit, async () => {
    await page.getByRole('button', { name: 'New sandbox' }).click();
    await shows(page.locator('tr[data-state="running"]'));
    [id] = await rows();
    assert.match(id, /^[a-z2-7]{26}$/);
    await row_of(id).locator('[data-label="CPU"]').filter({ hasText: /^[\d.]+ %$/ }).waitFor();
    const cells = Object.fromEntries(
      await row_of(id).locator('td').evaluateAll((all) => all.map((each) => [each.dataset.label, each.textContent])),
    );
    assert.equal(cells.Id, id);
    assert.match(cells.Age, /^\d+ (s|min)$/);
    assert.match(cells.Memory, /^[\d.]+ (B|KiB|MiB)$/);
    assert.match(cells.Processes, /^\d+$/);
  });

  test('sandboxes of others are there as well, and go when they go', limit, async () => {
    const other = (await (await call('POST', '/v1/sandbox')).json()).id;
    await call('GET', `/v1/sandbox/${other}/running`);
    await shows(row_of(other));
    assert.equal((await call('DELETE', `/v1/sandbox/${other}`)).status, 204);
    await row_of(other).waitFor({ state: 'detached' });
    assert.deepEqual(await rows(), [id]);
  });

  test('what does not answer is said to be so', limit, async () => {
    const said = await (await call('GET', '/console/sandboxes')).json();
    for (const each of said.sandboxes) each.current = false;
    await page.route('**/console/sandboxes', (route) => route.fulfill({ json: said }));
    await row_of(id).getByText('running, not answering').waitFor();
    await page.unroute('**/console/sandboxes');
    await row_of(id).getByText(/^running$/).waitFor();
  });

  test('what is not on the first page is shown on request', limit, async () => {
    const said = await (await call('GET', '/console/sandboxes')).json();
    const other = { ...said.sandboxes[0], id: 'further' };
    await page.route('**/console/sandboxes', (route) => route.fulfill({ json: { ...said, next: '7', total: 9 } }));
    await page.route('**/console/sandboxes?after=7', (route) => route.fulfill({ json: { ...said, sandboxes: [other] } }));
    await shows(page.getByRole('button', { name: 'Show more' }));
    assert.equal(await page.locator('#count').textContent(), `${said.sandboxes.length} of 9`);
    await page.getByRole('button', { name: 'Show more' }).click();
    await row_of('further').waitFor();
    await page.getByRole('button', { name: 'Show more' }).waitFor({ state: 'hidden' });
    await page.unroute('**/console/sandboxes');
    await page.unroute('**/console/sandboxes?after=7');
    await row_of('further').waitFor({ state: 'detached' });
  });

  test('a terminal opens and does what is typed', limit, async () => {
    await page.getByRole('button', { name: `Terminal in ${id}` }).click();
    await connected();
    assert.equal(new URL(page.url()).hash, `#terminal/${id}`);
    await type_line(page, 'echo "it is $((6 * 7))"; kept=still');
    await until_shown(page, /^it is 42$/m);
  });

  test('it has the size of the window', limit, async () => {
    let asked = 0;
    const size = async () => {
      const said = new RegExp(`^size ${++asked}: (\\d+) (\\d+)$`, 'm');
      await type_line(page, `clear; echo "size $((${asked})): $(stty size)"`);
      await until_shown(page, said);
      return said.exec((await screen_of(page)).join('\n')).slice(1).map(Number);
    };
    const [lines, columns] = await size();
    assert.ok(lines > 24 && columns > 100, `${lines} ${columns}`);
    await page.setViewportSize({ width: 900, height: 500 });
    await page.waitForFunction((n) => document.querySelectorAll('.xterm-rows > div').length < n, lines);
    const [fewer, narrower] = await size();
    assert.ok(fewer < lines && narrower < columns, `${fewer} ${narrower}`);
    await page.setViewportSize({ width: 1180, height: 720 });
    await page.waitForFunction((n) => document.querySelectorAll('.xterm-rows > div').length === n, lines);
    assert.deepEqual(await size(), [lines, columns]);
  });

  test('vim edits a file in it', limit, async () => {
    // In one line: a program that draws throws away what is typed while it leaves.
    await type_line(page, '$(ls /usr/bin/vim.* | head -n 1) -u NONE notes.txt; clear; tr a-z A-Z < notes.txt');
    await until_shown(page, /^~$/m);
    await page.keyboard.type('iwritten in vim');
    await page.keyboard.press('Escape');
    await type_line(page, ':wq');
    await until_shown(page, /^WRITTEN IN VIM$/m);
  });

  test('top draws the whole screen and gives it back', limit, async () => {
    await type_line(page, 'clear; top; echo "top is $?"');
    await until_shown(page, /PID USER/);
    await page.keyboard.type('q');
    await until_shown(page, /^top is 0$/m);
  });

  test('a program may draw every cell, in every colour, and the screen that was there comes back', limit, async () => {
    await type_line(page, 'clear; echo before');
    await until_shown(page, /^before$/m);
    const draw =
      String.raw`printf '\e[?1049h\e[2J'; for ((y = 1; y <= LINES; ++y)); do for ((x = 1; x <= COLUMNS; ++x)); do ` +
      String.raw`printf '\e[%d;%dH\e[48;2;%d;%d;90m%d' $y $x $((x * 2 % 256)) $((y * 6 % 256)) $((x % 10)); done; done; read -rn 1; printf '\e[0m\e[?1049l'`;
    await type_line(page, draw);
    await page.waitForFunction(() =>
      [...document.querySelectorAll('.xterm-rows > div')].every((row) => /^(1234567890)+\d*$/.test(row.textContent)),
    );
    const [first] = await page.locator('.xterm-rows > div').first().locator('span').evaluateAll((cells) =>
      cells.map((each) => getComputedStyle(each).backgroundColor),
    );
    assert.equal(first, 'rgb(2, 6, 90)');
    await picture('console-colours');
    await page.keyboard.type('q');
    await until_shown(page, /^before$/m);
  });

  test('a paste of 300 kB arrives whole', limit, async () => {
    await type_line(page, 'clear; stty -echo; echo "no echo"; head -c 300001 | sha256sum; stty echo');
    await until_shown(page, /^no echo$/m); // From here on, it is not the shell that reads.
    const text = `${'0123456789'.repeat(10)}\n`.repeat(2971).slice(0, 300_000);
    await page.locator('.xterm-helper-textarea').evaluate((field, pasted) => {
      const data = new DataTransfer();
      data.setData('text/plain', pasted);
      field.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true }));
    }, text);
    await page.keyboard.press('Enter');
    const { createHash } = await import('node:crypto');
    await until_shown(page, createHash('sha256').update(`${text}\n`).digest('hex'));
  });

  test('when the connection breaks it is made again, with the same screen', limit, async () => {
    await type_line(page, 'clear; PS1="> "; seq -s " " 1 20');
    await until_shown(page, /19 20\n>$/m);
    const before = await screen_of(page);
    const since = (await told()).length;
    wire.cut();
    await came_back(since);
    await until_shown(page, /19 20\n>$/m);
    assert.deepEqual(await screen_of(page), before);
    await type_line(page, 'echo $kept here');
    await until_shown(page, /^still here$/m);
  });

  test('a page that is loaded again is in the same terminal', limit, async () => {
    await page.reload();
    await connected();
    await until_shown(page, /^still here$/m);
    await type_line(page, 'clear; echo $kept the same');
    await until_shown(page, /^still the same$/m);
  });

  test('what a program has asked its terminal is not answered again', limit, async () => {
    // The last answer ends in R.
    await type_line(page, String.raw`printf '\e[c\e[>c\e[6n'; read -rsd R; clear; echo asked`);
    await until_shown(page, /^asked\n>$/m);
    await page.reload();
    await connected();
    await type_line(page, 'echo nothing else');
    await until_shown(page, /^nothing else\n>$/m);
    assert.deepEqual((await screen_of(page)).filter((line) => line), ['asked', '> echo nothing else', 'nothing else', '>']);
  });

  test('a sequence that was cut in half takes nothing of the new screen', limit, async () => {
    // All that is kept, without an escape in it; then a title that does not end.
    await type_line(page, String.raw`seq 1000000 1050000; printf 'half \e]0;title'; read -rsn 1; printf '\a\n'`);
    await until_shown(page, /^half$/m);
    const before = await screen_of(page);
    const since = (await told()).length;
    wire.cut();
    await came_back(since);
    await until_shown(page, /^half$/m);
    assert.deepEqual(await screen_of(page), before);
    await page.keyboard.type('q');
    await type_line(page, 'clear');
  });

  test('whoever prints without end is interrupted', limit, async () => {
    await type_line(page, 'clear; yes "$(printf %01000d 7)"');
    await until_shown(page, /^0{60,}$/m);
    await page.keyboard.press('Control+C');
    await type_line(page, 'clear; echo "yes is $?"');
    await until_shown(page, /^yes is (130|0)\n>$/m);
  });

  test('more output than can be drawn is caught up with, and keys go through meanwhile', limit, async () => {
    const slow = await page.context().newPage();
    slow.setDefaultTimeout(patience_ms);
    watch.page(slow);
    const sockets = [];
    await slow.routeWebSocket(/\/pty\?/, (socket) => {
      socket.connectToServer();
      sockets.push(socket);
    });
    await slow.goto(`${wire.url}/#terminal/${id}`);
    await connected(slow);
    await type_line(slow, 'clear; echo waits; read -rsn 1; echo went through');
    await until_shown(slow, /^waits$/m);
    let since = (await told(slow)).length;
    const much = Buffer.alloc(9 << 20, '\x1b[31mnever\x1b[m printed\r\n');
    for (let i = 0; i < 2; ++i) sockets[0].send(much); // xterm.js draws at once what comes first after a key.
    await slow.keyboard.press('q');
    await came_back(since, 'Catching up', slow);
    await until_shown(slow, /^went through\n>$/m);
    assert.equal(sockets.length, 2);
    since = (await told(slow)).length;
    sockets[1].close({ code: 1013, reason: 'too slow for the output' });
    await came_back(since, 'Catching up', slow);
    await until_shown(slow, /^went through\n>$/m);
    assert.ok(!(await screen_of(slow)).some((line) => line.includes('never')));
    assert.ok(!(await told(slow)).some((words) => words.startsWith('Disconnected')));
    await slow.close();
  });

  test('Ctrl+W does not close the page unasked, and a reload asks nothing', limit, async () => {
    let asked = 0;
    const count = (dialog) => {
      ++asked;
      dialog.dismiss().catch(() => {});
    };
    page.on('dialog', count);
    await page.keyboard.down('Control');
    const dialog = page.waitForEvent('dialog');
    await page.close({ runBeforeUnload: true });
    assert.equal((await dialog).type(), 'beforeunload');
    await page.keyboard.up('Control');
    await page.reload();
    await connected();
    assert.equal(asked, 1);
    page.off('dialog', count);
  });

  test('keys are the terminal\'s, but for the one that leaves it', limit, async () => {
    await type_line(page, 'clear; showkey() { stty raw -echo; printf "keys:\\r\\n"; head -c 5 | od -An -tx1; stty sane; }; showkey');
    await until_shown(page, /^keys:$/m);
    for (const name of ['Tab', 'Escape', 'Control+L', 'Control+K', 'Control+D']) await page.keyboard.press(name);
    await until_shown(page, /^ 09 1b 0c 0b 04$/m);
    await page.keyboard.press('Control+Shift+L');
    assert.match(await focused(), /Sandboxes$/);
    await page.keyboard.press('Enter');
    await shows(page.getByRole('heading', { name: /^Sandboxes/ }));
    await page.waitForFunction((name) => document.activeElement?.getAttribute('aria-label') === name, `Terminal in ${id}`);
  });

  test('the end of the shell is told, and another one can be had', limit, async () => {
    await page.keyboard.press('Enter');
    await connected();
    await type_line(page, 'exit 7');
    await shows(page.getByText('The shell has ended (7).'));
    await page.getByRole('button', { name: 'New terminal' }).click();
    await connected();
    await type_line(page, 'clear; echo "kept is <$kept>"');
    await until_shown(page, /^kept is <>$/m);
  });

  test('a terminal begins with words of its own, also by the way of history', limit, async () => {
    const other = (await (await call('POST', '/v1/sandbox')).json()).id;
    await call('GET', `/v1/sandbox/${other}/running`);
    await type_line(page, 'exit 3');
    await shows(page.getByRole('button', { name: 'New terminal' }));
    let go_on;
    const looked = new Promise((resume) => (go_on = resume));
    await page.route('**/console/sandboxes', async (route) => {
      await looked;
      await route.continue();
    });
    await page.evaluate((address) => (location.hash = address), `#terminal/${other}`);
    await shows(page.getByRole('heading', { name: other }));
    assert.equal(await page.getByRole('status').textContent(), 'Connecting\u2026');
    assert.equal(await page.getByRole('button', { name: 'New terminal' }).isVisible(), false);
    go_on();
    await connected();
    await page.unroute('**/console/sandboxes');
    await page.goBack();
    await shows(page.getByRole('heading', { name: id }));
    await connected();
    assert.equal((await call('DELETE', `/v1/sandbox/${other}`)).status, 204);
  });

  test('a phone has the keys that it lacks', limit, async () => {
    assert.equal(await page.getByRole('group', { name: 'Keys' }).isVisible(), false);
    const context = await browser.newContext({ viewport: { width: 390, height: 780 }, hasTouch: true, isMobile: true, colorScheme: 'dark' });
    await context.addCookies(await page.context().cookies());
    const phone = await context.newPage();
    phone.setDefaultTimeout(patience_ms);
    watch.page(phone);
    await phone.goto(`${wire.url}/#terminal/${id}`);
    await connected(phone);
    await phone.locator('#screen').tap();
    await type_line(phone, 'clear; showkey() { stty raw -echo; printf "keys:\\r\\n"; head -c 13 | od -An -tx1; stty sane; }; showkey');
    await until_shown(phone, /^keys:$/m);
    const tap = (name) => phone.getByRole('group', { name: 'Keys' }).getByRole('button', { name, exact: true }).tap();
    const control = 'Control, for the next key';
    for (const name of ['Escape', 'Tab', control]) await tap(name);
    assert.equal(await phone.getByRole('button', { name: control, pressed: true }).count(), 1);
    await phone.keyboard.type('a');
    assert.equal(await phone.getByRole('button', { name: control, pressed: false }).count(), 1);
    for (const name of ['Left', control, 'Up', 'Control C']) await tap(name);
    await until_shown(phone, /^ 1b 09 01 1b 5b 44 1b 5b 31 3b 35 41 03$/m);
    // The phone's own keyboard stays where it is.
    assert.equal(await phone.evaluate(() => document.activeElement.className), 'xterm-helper-textarea');
    for (const button of await phone.locator('#terminal-view button:visible').all()) {
      const { x, width } = await button.boundingBox();
      assert.ok(x >= 0 && x + width <= 390);
    }
    if (process.env.INSULA_PICTURES) await phone.screenshot({ path: `${process.env.INSULA_PICTURES}/console-terminal-keys.png` });
    await context.close();
    await page.reload(); // The terminal has the phone's size until then.
    await connected();
  });

  test('a screen reader finds what is printed, and the choice is kept', limit, async () => {
    await type_line(page, 'clear; echo "read $((6 * 7))"');
    await until_shown(page, /^read 42$/m);
    const lines = page.locator('.xterm-accessibility').getByText('read 42', { exact: true });
    assert.equal(await lines.count(), 0);
    await page.getByLabel('Screen reader').check();
    await lines.waitFor({ state: 'attached' });
    await page.reload();
    await connected();
    await lines.waitFor({ state: 'attached' });
    await page.getByLabel('Screen reader').uncheck();
    await lines.waitFor({ state: 'detached' });
    await page.locator('.xterm-helper-textarea').focus();
  });

  test('it is good to look at, in light and dark and on a phone', limit, async () => {
    await type_line(page, 'clear; ls --color=always / | head -n 8; uname -sm; echo "Hello from a sandbox"');
    await until_shown(page, /^Hello from a sandbox$/m);
    const narrow = { width: 390, height: 780 };
    const wide = { width: 1180, height: 720 };
    const others = [];
    for (let i = 0; i < 2; ++i) {
      others.push((await (await call('POST', '/v1/sandbox')).json()).id);
      await call('GET', `/v1/sandbox/${others[i]}/running`);
    }
    for (const [look, size, colorScheme] of [['light', wide, 'light'], ['dark', wide, 'dark'], ['phone', narrow, 'dark']]) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize(size);
      await shows(page.getByRole('heading', { name: id }));
      await connected();
      await until_shown(page, /^Hello from a sandbox$/m);
      await picture(`console-terminal-${look}`);
      await page.getByRole('button', { name: 'Sandboxes' }).click();
      await shows(row_of(others[1]));
      await row_of(others[1]).locator('[data-label="CPU"]').filter({ hasText: /%$/ }).waitFor();
      // Nothing is wider than the screen, and every button is on it.
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), look);
      for (const button of await page.locator('#list-view button:visible').all()) {
        const { x, width } = await button.boundingBox();
        assert.ok(x >= 0 && x + width <= size.width, look);
      }
      await picture(`console-${look}`);
      await page.goBack();
    }
    await page.emulateMedia({ colorScheme: 'light' });
    await page.setViewportSize(wide);
    await page.getByRole('button', { name: 'Sandboxes' }).click();
    for (const other of others) assert.equal((await call('DELETE', `/v1/sandbox/${other}`)).status, 204);
    for (const other of others) await row_of(other).waitFor({ state: 'detached' });
  });

  test('what a sandbox may reach is shown, and changed', limit, async () => {
    const policy = () => call('GET', `/v1/sandbox/${id}/network`).then((answer) => answer.json());
    const reach = (what) =>
      call('POST', `/v1/sandbox/${id}/exec`, { body: JSON.stringify({ argv: ['bash', '-c', what] }) }).then((answer) => answer.text());
    await page.getByRole('button', { name: `Network of ${id}` }).click();
    assert.equal(new URL(page.url()).hash, `#network/${id}`);
    const [rest, rules, save] = [page.getByLabel('What no rule matches'), page.getByLabel('Rules'), page.getByRole('button', { name: 'Save' })];
    await shows(page.getByText('Nothing was.'));
    assert.equal(await rest.inputValue(), 'allow');

    await rest.selectOption('deny');
    await rules.fill('allow a.example\n\ndeny  198.51.100.7/24');
    await save.click();
    await shows(page.getByText('Saved. It holds now.'));
    assert.equal(await rules.inputValue(), 'allow a.example\ndeny 198.51.100.0/24');
    assert.equal((await policy()).policy.default, 'deny');

    // What is refused comes by itself, and can be allowed.
    await reach('getent hosts b.example; exec 3<>/dev/tcp/203.0.113.9/443');
    await shows(page.getByRole('cell', { name: '203.0.113.9' }));
    await page.getByRole('button', { name: 'Allow b.example' }).first().click();
    assert.equal(await rules.inputValue(), 'allow b.example\nallow a.example\ndeny 198.51.100.0/24');
    await picture('console-network');
    await save.click();
    await shows(page.getByText('Saved. It holds now.'));
    assert.equal((await policy()).policy.rules[0].target, 'b.example');

    for (const [wrong, why] of [
      ['forbid everything', 'is no rule'],
      ['allow *x.example', 'has a wildcard that is not a whole label'],
    ]) {
      await rules.fill(wrong);
      await save.click();
      await shows(page.getByRole('alert').getByText(why));
    }
    assert.equal((await policy()).policy.rules.length, 3);

    // Rules about requests are shown without their values, and are removed by no mistake.
    const about_requests = JSON.stringify({
      default: 'deny',
      rules: [
        { action: 'allow', target: 'c.example', match: { method: ['GET'], path: { startsWith: '/v1/' } }, respond: { status: 403, headers: { 'x-why': 'hidden-value' } } },
        { action: 'allow', target: 'd.example', transform: { headers: { authorization: 'hidden-value' } } },
        { action: 'allow', target: 'c.example', forward: 'https://proxy.example/base' },
      ],
    });
    assert.equal((await call('PUT', `/v1/sandbox/${id}/network`, { body: about_requests })).status, 200);
    await reach('curl -s https://c.example/v1/x');
    await page.reload();
    const about = (at) => page.locator('#request-rule-rows tr').nth(at);
    await shows(about(0).getByText('403', { exact: true }));
    const words_of = async (at) => (await about(at).locator('td').allTextContents()).slice(0, 4);
    assert.deepEqual(await words_of(0), ['c.example', 'GET, path /v1/\u2026', 'respond: 403, x-why', '1']);
    assert.deepEqual(await words_of(1), ['c.example', 'all', 'forward: https://proxy.example/base', '0']);
    assert.deepEqual(await words_of(2), ['d.example', 'all', 'transform: authorization', '0']);
    assert.doesNotMatch(await page.content(), /hidden-value/);
    assert.equal(await rules.inputValue(), 'allow c.example\nallow d.example');
    await picture('console-request-rules');
    await rules.fill('allow b.example\nallow a.example\ndeny 198.51.100.0/24');
    await save.click();
    await shows(page.getByRole('alert').getByText('Save again to remove them'));
    assert.equal((await policy()).policy.rules.length, 3);
    await save.click();
    await shows(page.getByText('Saved. It holds now.'));
    await page.locator('#request-rules').waitFor({ state: 'hidden' });
    await page.setViewportSize({ width: 390, height: 780 });
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
    await page.setViewportSize({ width: 1180, height: 720 });
    await page.reload();
    await page.waitForFunction(() => document.getElementById('policy-rules').value.startsWith('allow b.example'));
    await page.getByRole('button', { name: 'Sandboxes' }).click();
    await shows(row_of(id));
    assert.equal((await call('PUT', `/v1/sandbox/${id}/network`, { body: '{"mode":"allow-all"}' })).status, 200);
  });

  test('the runs of a sandbox are shown, with the time that is left and what each has used', limit, async () => {
    const hostile = '<img src=x onerror="window.smuggled = true">';
    const vercel = async (path, body) => {
      const answer = await call('POST', path, { body: JSON.stringify(body), headers: { ...headers, 'Content-Type': 'application/json' } });
      assert.equal(answer.status, 200, await answer.clone().text());
      return answer.json();
    };
    const { session } = await vercel('/v2/sandboxes', {
      projectId: '<b>prj</b>', name: 'main-box', timeout: 600_000, tags: { owner: 'tests', [hostile]: hostile },
    });
    const other = session.id.slice('sbx_'.length, 'sbx_'.length + 26);
    const cell = (label) => row_of(other).locator(`[data-label="${label}"]`);
    const is_text = async () => {
      assert.equal(await page.locator('#list-view b, #list-view img, #runs-view b, #runs-view img').count(), 0);
      assert.equal(await page.evaluate(() => window.smuggled), undefined);
    };
    /// Until an element counts down from `from` s or less, with fewer s than `below`; then how many.
    const counts_down = async (selector, from, below = from + 1) =>
      (await page.waitForFunction(
        ([where, most, limit]) => {
          const [, minutes, seconds] = /(\d+)\smin (\d+)\ss( left)?$/.exec(document.querySelector(where)?.textContent) ?? [];
          const left = Number(minutes) * 60 + Number(seconds);
          return left > 0 && left <= most && left < limit && { left };
        },
        [selector, from, below],
      )).evaluate(({ left }) => left);

    await cell('State').getByText(/^run \d+, /).waitFor();
    assert.equal(await cell('Id').locator('.below').textContent(), `<b>prj</b> / main-box \u00b7 ${hostile}: ${hostile} \u00b7 owner: tests`);
    const state = `tr[data-id="${other}"] [data-label="State"]`;
    await counts_down(state, 600, await counts_down(state, 600));
    assert.equal(await page.getByRole('button', { name: `Runs of ${id}` }).count(), 0); // That one has none.
    await is_text();
    await picture('console-list-runs');

    // The node's time counts, and the page counts on where answers say the same.
    const said = await (await call('GET', '/console/sandboxes')).json();
    for (const each of said.sandboxes) if (each.id === other) Object.assign(each, { name: hostile, run: { ...each.run, ends_ms: said.now_ms - 86_400_000 + 300_500 } });
    said.now_ms -= 86_400_000;
    await page.route('**/console/sandboxes', (route) => route.fulfill({ json: said }));
    await counts_down(state, 300);
    await counts_down(state, 299);
    assert.ok((await cell('Id').textContent()).includes(`<b>prj</b> / ${hostile}`));
    await is_text();
    await page.unroute('**/console/sandboxes');
    await counts_down(state, 600, 601);
    await cell('Id').getByText('/ main-box').waitFor();

    await tab_to(`Runs of ${other}`);
    await page.keyboard.press('Enter');
    assert.equal(new URL(page.url()).hash, `#runs/${other}`);
    await page.waitForFunction(() => document.activeElement?.id === 'runs-leave'); // The address is there before its view.
    await page.keyboard.press('Enter'); // Back, where it was.
    await page.waitForFunction((name) => document.activeElement?.getAttribute('aria-label') === name, `Terminal in ${other}`);
    await tab_to(`Runs of ${other}`);
    await page.keyboard.press('Enter');
    const run = page.locator('#run-rows tr');
    const told = async () =>
      Object.fromEntries(await run.locator('td').evaluateAll((all) => all.map((each) => [each.dataset.label, each.textContent])));
    await run.getByText('running').waitFor();
    const left = '#run-rows [data-label="Time left"]';
    await counts_down(left, 600, await counts_down(left, 600));
    const { CPU, Received, Sent } = await told();
    assert.deepEqual({ CPU, Received, Sent }, { CPU: '\u2013', Received: '\u2013', Sent: '\u2013' });
    await vercel(`/v2/sandboxes/sessions/${session.id}/extend-timeout`, { duration: 600_000 });
    await page.waitForFunction((where) => /^1\d\smin/.test(document.querySelector(where).textContent), left);
    const words = await page.locator('#runs-words > div').evaluateAll((all) => all.map((each) => [...each.children].map((one) => one.textContent)));
    assert.deepEqual(words, [['Name', 'main-box'], ['Project', '<b>prj</b>'], ['Tag', `${hostile}: ${hostile}`], ['Tag', 'owner: tests']]);
    await is_text();
    assert.equal(await page.getByRole('heading', { name: 'All that are over' }).isVisible(), false);

    const { session: over } = await vercel(`/v2/sandboxes/sessions/${session.id}/stop`, {});
    await run.getByText('stopped').waitFor();
    const used = await told();
    assert.equal(used['Time left'], '\u2013');
    assert.equal(used.CPU, `${(over.activeCpuDurationMs / 1000).toFixed(2)} s`);
    for (const label of ['Received', 'Sent']) assert.match(used[label], /^[\d.]+ (B|KiB|MiB)$/);
    assert.match(used.Duration, /\ss$/);
    await shows(page.getByRole('heading', { name: 'All that are over' }));
    assert.equal(await page.locator('#run-totals').getByText(used.CPU).count(), 1);
    for (const [look, size, colorScheme] of [['light', { width: 1180, height: 720 }, 'light'], ['phone', { width: 390, height: 780 }, 'dark']]) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize(size);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), look);
      await picture(`console-runs-${look}`);
    }
    await page.emulateMedia({ colorScheme: 'light' });
    await page.setViewportSize({ width: 1180, height: 720 });

    // An address alone starts nothing, and tells of what is not there.
    await page.reload();
    await run.getByText('stopped').waitFor();
    assert.equal((await call('DELETE', `/v1/sandbox/${other}`)).status, 204);
    await shows(page.getByText('There is no such sandbox.'));
    await page.goto(`${wire.url}/#runs/${id}`);
    await shows(page.getByText('It has had none.'));
    await page.getByRole('button', { name: 'Sandboxes' }).click();
    await shows(row_of(id));
    assert.deepEqual(await rows(), [id]);
  });

  test('further runs of a sandbox are shown on request', limit, async () => {
    const of = (number) => ({ number, state: 'stopped', started_ms: 1, ended_ms: 2, cpu_ms: 3, bytes_in: 4, bytes_out: 5 });
    const page_of = (from, count) => Array.from({ length: count }, (_, i) => of(from - i));
    const shown = () => page.locator('#run-rows tr').evaluateAll((all) => all.map((each) => Number(each.dataset.run)));
    await page.route(`**/console/sandboxes/${id}/runs`, (route) => route.fulfill({ json: { now_ms: 9, next: '6', runs: page_of(25, 20) } }));
    await page.route(`**/console/sandboxes/${id}/runs?after=6`, (route) => route.fulfill({ json: { now_ms: 9, runs: page_of(5, 5) } }));
    await page.evaluate((address) => (location.hash = address), `#runs/${id}`);
    await page.locator('tr[data-run="25"]').waitFor();
    assert.equal((await shown()).length, 20);
    await page.locator('#more-runs').click();
    await page.locator('tr[data-run="1"]').waitFor();
    assert.deepEqual(await shown(), Array.from({ length: 25 }, (_, i) => 25 - i));
    assert.equal(await page.locator('#more-runs').isVisible(), false);
    await page.unroute(`**/console/sandboxes/${id}/runs`);
    await page.unroute(`**/console/sandboxes/${id}/runs?after=6`);
    await shows(page.getByText('It has had none.'));
    await page.route(`**/console/sandboxes/${id}/runs`, (route) => route.abort());
    await shows(page.getByRole('alert').getByText('The node does not answer. Trying again'));
    await page.unroute(`**/console/sandboxes/${id}/runs`);
    await page.getByRole('alert').getByText('The node does not answer.').waitFor({ state: 'hidden' });
    await page.getByRole('button', { name: 'Sandboxes' }).click();
    await shows(row_of(id));
  });

  describe('the snapshots of a sandbox', () => {
    const node_of = (name) => page.getByRole('treeitem', { name });
    const listed = (which) => page.locator(`tr[data-snapshot="${which}"]`);
    const button = (name) => page.getByRole('button', { name, exact: true });
    const dialog = () => page.getByRole('dialog');
    const at = (path) => (url) => url.pathname === path;
    const json_of = async (method, path, body) => {
      const answer = await call(method, path, { body: body && JSON.stringify(body) });
      assert.equal(answer.status, 200, await answer.clone().text());
      return answer.json();
    };
    const snapshots = async () => (await json_of('GET', `/v1/sandbox/${id}/snapshots`)).snapshots;
    const note_of = async (which) => (await call('GET', `/v1/sandbox/${which}/file/workspace/note`)).text();
    const write_note = async (text) => assert.equal((await call('PUT', `/v1/sandbox/${id}/file/workspace/note`, { body: text })).status, 200);
    const made = () => page.locator('#snapshots-made a').evaluateAll((all) => all.map((each) => each.textContent));
    const others = [];
    let before, later;

    test('a snapshot is taken while the sandbox runs, and is listed', limit, async () => {
      await write_note('first');
      await button(`Snapshots of ${id}`).click();
      assert.equal(new URL(page.url()).hash, `#snapshots/${id}`);
      await shows(page.getByText('It has none yet.'));
      assert.equal(await page.getByRole('tree').count(), 0);
      await page.getByLabel('Name, if it is to have one').fill('before');
      await button('Snapshot').click();
      await shows(page.getByText('before was taken.'));
      before = (await snapshots())[0].id;
      await listed(before).waitFor();
      await write_note('second');
      await page.getByLabel('Name, if it is to have one').focus();
      await page.keyboard.press('Enter');
      await page.getByRole('status').filter({ hasText: /^[a-z2-7]{26} was taken\.$/ }).waitFor();
      const [newest, oldest] = await snapshots();
      later = newest.id;
      assert.deepEqual([oldest.name, oldest.id, newest.parent], ['before', before, before]);
      await listed(later).waitFor();
      const cells = Object.fromEntries(await listed(before).locator('td').evaluateAll((all) => all.map((each) => [each.dataset.label, each.textContent])));
      assert.equal(cells.Name, `before${before}`);
      assert.deepEqual([cells.State, cells.Kind], ['created', 'manual']);
      assert.match(cells.Size, /^[\d.]+ (B|KiB|MiB|GiB)$|^\u2013$/);
      assert.match(cells.Taken, /\d/);
    });

    test('a click on one in the tree shows what it is, and so does Enter', limit, async () => {
      await node_of(/^before, /).click();
      await shows(page.getByRole('heading', { name: 'before' }));
      assert.equal(await node_of(/^before, /).getAttribute('aria-selected'), 'true');
      const figures = () => page.locator('#snapshot-figures > div').evaluateAll((all) => Object.fromEntries(all.map(({ children: [name, value] }) => [name.textContent, value.textContent])));
      const told = await figures();
      assert.deepEqual([told.Id, told.State, told['Disk of']], [before, 'created', id]);
      assert.equal(await page.locator('#tree .lines path').count(), 1); // From one to the other.
      await page.keyboard.press('ArrowDown');
      assert.equal(await page.evaluate(() => document.activeElement.dataset.id), later);
      assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement.querySelector('.ground')).stroke), 'none');
      assert.equal(await node_of(/^before, /).getAttribute('aria-selected'), 'true');
      await page.keyboard.press('Enter');
      await shows(page.getByRole('heading', { name: later }));
      assert.equal((await figures())['Comes from'], before);
      assert.equal(await page.getByRole('treeitem', { selected: true }).getAttribute('data-id'), later);
      await page.keyboard.press('ArrowLeft'); // To where it comes from.
      assert.equal(await page.evaluate(() => document.activeElement.dataset.id), before);
      // A look that changes nothing leaves the focus where it is.
      await page.waitForResponse((answer) => new URL(answer.url()).pathname.endsWith('/tree'));
      await page.waitForResponse((answer) => new URL(answer.url()).pathname.endsWith('/tree'));
      assert.equal(await page.evaluate(() => document.activeElement.dataset.id), before);
    });

    test('sandboxes are forked, and one is made from a snapshot in the tree', limit, async () => {
      await page.getByLabel('Sandboxes to make').fill('2');
      await button('Fork').click();
      await shows(page.getByText('2 sandboxes were made:'));
      others.push(...(await made()));
      assert.equal(others.length, 2);
      for (const each of others) assert.equal(await note_of(each), 'second');
      await node_of(/^before, /).click();
      await button('New sandbox from it').click();
      await shows(page.getByText('1 sandbox was made:'));
      const [from] = await made();
      others.push(from);
      assert.equal(await note_of(from), 'first');
      assert.equal((await json_of('GET', `/v1/sandbox/${from}`)).snapshot, before);
      await page.locator('#snapshot-figures > div').filter({ hasText: /^Sandboxes that began with it1$/ }).waitFor();
      await picture('console-snapshots');
      await page.getByRole('link', { name: `Terminal in ${from}` }).click();
      await connected();
      await type_line(page, 'clear; cat /workspace/note; echo');
      await until_shown(page, /^first$/m);
    });

    test('the tree of a sandbox that began with a snapshot shows where, and that it goes back to no other one', limit, async () => {
      const from = others[2];
      await page.evaluate((address) => (location.hash = address), `#snapshots/${from}`);
      await shows(page.getByText('It has none yet.'));
      await node_of(/^before, the sandbox begins here, /).click();
      await shows(button('Roll back to it'));
      await node_of(new RegExp(`^${later}, `)).click();
      await shows(page.getByText(`It is of the disk of ${id}: this sandbox cannot go back to it.`));
      await button('Roll back to it').waitFor({ state: 'hidden' });
      await shows(button('New sandbox from it'));
      await page.goBack();
      await shows(page.locator('#terminal-view'));
      await page.goBack();
      await listed(before).waitFor();
    });

    test('a sandbox is rolled back once that is confirmed', limit, async () => {
      await button('Roll back to before').click();
      await shows(dialog());
      assert.equal(await focused(), 'Leave it as it is');
      assert.ok((await dialog().textContent()).includes(`Everything that runs in ${id} ends`));
      await picture('console-roll-back');
      await page.keyboard.press('Escape');
      await dialog().waitFor({ state: 'hidden' });
      assert.equal(await focused(), 'Roll back to before');
      assert.equal(await note_of(id), 'second');
      await node_of(/^before, /).click();
      await button('Roll back to it').click();
      await dialog().getByRole('button', { name: 'Roll back' }).click();
      await shows(page.getByText('The sandbox was rolled back to before.'));
      assert.equal(await note_of(id), 'first');
      await node_of(/^before, the sandbox begins here, /).waitFor();
      await listed(before).getByText('the sandbox begins here').waitFor();
    });

    test('a snapshot is deleted once that is confirmed, and stays in the tree as one', limit, async () => {
      await write_note('third');
      await page.getByLabel('Name, if it is to have one').fill('after');
      await button('Snapshot').click();
      await shows(page.getByText('after was taken.'));
      await node_of(/^after, /).waitFor();
      assert.equal(await page.locator('#tree .lines path').count(), 2); // Two come from the first one.
      await button(`Delete ${later}`).click();
      assert.equal(await focused(), 'Keep it');
      await page.keyboard.press('Enter');
      await dialog().waitFor({ state: 'hidden' });
      assert.equal((await snapshots()).length, 3);
      await button(`Delete ${later}`).click();
      await dialog().getByRole('button', { name: 'Delete' }).click();
      await listed(later).waitFor({ state: 'detached' });
      await shows(page.getByText(`${later} was deleted.`));
      assert.equal((await snapshots()).length, 2);
      const gone = node_of(new RegExp(`^${later}, deleted, `));
      await gone.waitFor();
      await page.waitForFunction((which) => document.activeElement?.dataset.id === which, later); // Its button has gone.
      await page.keyboard.press('Enter');
      await shows(page.getByText('It was deleted: no sandbox can begin with it.'));
      for (const name of ['New sandbox from it', 'Roll back to it', 'Delete']) assert.equal(await button(name).count(), 0);
      const shape = (which) => which.locator('.point').evaluate((each) => getComputedStyle(each).strokeDasharray);
      assert.notEqual(await shape(gone), await shape(node_of(/^after, /)));

      await node_of(/^after, /).click();
      await button('Delete').click();
      await dialog().getByRole('button', { name: 'Delete' }).click();
      await shows(page.getByText('after was deleted.'));
      await node_of(/^after, deleted, /).waitFor();
    });

    test('what goes wrong with a snapshot is said', limit, async () => {
      await node_of(/^before, /).click();
      const taking = at(`/v1/sandbox/${id}/snapshot`);
      await page.route(taking, (route) => route.fulfill({ status: 507, json: { error: 'the disk is full', code: 'insufficient_storage' } }));
      await button('Snapshot').click();
      await shows(page.getByRole('alert').getByText('the disk is full'));
      await page.unroute(taking);
      await button('Dismiss').click();

      const forking = at(`/v1/sandbox/${id}/fork`);
      for (const answer of [{}, { sandboxes: [{ id: '../..' }] }]) {
        await page.route(forking, (route) => route.fulfill({ json: answer }));
        await button('Fork').click();
        await shows(page.getByRole('alert').getByText('is none that this page understands.'));
        await page.unroute(forking);
        await button('Dismiss').click();
      }
      assert.deepEqual(await made(), []);

      await page.getByLabel('Name, if it is to have one').fill('\u00fc'.repeat(256)); // More bytes than letters.
      await button('Snapshot').click();
      await shows(page.getByRole('alert'));
      assert.match(await page.getByRole('alert').textContent(), /name/);
      await page.getByLabel('Name, if it is to have one').fill('');
      await button('Dismiss').click();

      const tree = at(`/v1/snapshot/${before}/tree`);
      for (const answer of [[], { snapshots: [{ id: before, state: 7 }] }]) {
        await page.route(tree, (route) => route.fulfill({ json: answer }));
        await shows(page.getByRole('alert').getByText('is none that this page understands. Trying again'));
        await page.unroute(tree);
        await page.getByRole('alert').getByText('understands').waitFor({ state: 'hidden' });
      }
      // What comes from itself, from what is not there, or twice is drawn all the same.
      const [one] = await snapshots();
      const wrong = [{ ...one, parent: one.id }, { ...one, id: 'b', parent: 'c' }, { ...one, id: 'c', parent: 'b' }, { ...one, id: 'd', parent: 'e' }, { ...one, id: 'd' }];
      await page.route(tree, (route) => route.fulfill({ json: { snapshots: wrong } }));
      await page.locator('#tree [data-id="d"]').waitFor();
      assert.equal(await page.getByRole('treeitem').count(), 4);
      await page.unroute(tree);
      await page.locator('#tree [data-id="d"]').waitFor({ state: 'detached' });
    });

    test('of a large tree so many are drawn, and how many are left out is said', limit, async () => {
      const hostile = '<img src=x onerror="window.smuggled = true">';
      const [one] = await snapshots();
      const of = (number) => ({
        ...one, id: number === 0 ? before : `s${'abcdefghij'[number % 10]}${'klmnopqrst'[Math.floor(number / 10) % 10]}${'uvwxyz'[Math.floor(number / 100)]}`, name: hostile,
        root: before, parent: number === 0 ? undefined : before, created_ms: one.created_ms + number, state: number % 3 === 0 ? 'failed' : 'created',
      });
      const all = Array.from({ length: 256 }, (_, number) => of(number));
      const tree = at(`/v1/snapshot/${before}/tree`);
      const asked = [];
      await page.route(tree, (route) => {
        asked.push(new URL(route.request().url()).searchParams.get('cursor'));
        return route.fulfill({ json: { snapshots: asked.at(-1) === null ? all : all.slice(1).map((each) => ({ ...each, id: `t${each.id}` })), cursor: 'more' } });
      });
      await shows(page.getByText(/^200 of 511 are drawn: .* 311 are left out\. Of this tree, the 511 oldest were read\./));
      assert.equal(await page.getByRole('treeitem').count(), 200);
      assert.deepEqual(asked.slice(0, 2), [null, 'more']);
      assert.equal(await page.locator('#tree .base').getAttribute('data-id'), before); // It is drawn, as old as it is.
      assert.equal(await page.locator('#snapshots-view img').count(), 0);
      assert.equal(await page.evaluate(() => window.smuggled), undefined);
      await page.unroute(tree);
      await page.locator('#tree-left-out').waitFor({ state: 'hidden' });
    });

    test('they are good to look at, in light and dark and on a phone', limit, async () => {
      const [one] = await snapshots();
      const ids = [before, 'ba', 'bb', 'bc', 'bd', 'be', 'bf', 'bg'];
      const parents = [undefined, before, 'ba', 'ba', 'bb', 'bc', before, 'bf'];
      const names = ['before', 'with Node 22', 'tests green', 'other parser', '', 'faster', 'attempt 2', 'attempt 2, again'];
      const states = ['created', 'created', 'created', 'deleted', 'created', 'failed', 'created', 'created'];
      const all = ids.map((which, n) => ({ ...one, id: which, root: before, parent: parents[n], name: names[n], state: states[n], created_ms: one.created_ms + n * 60_000 }));
      const tree = at(`/v1/snapshot/${before}/tree`);
      await page.route(tree, (route) => route.fulfill({ json: { snapshots: all } }));
      await node_of(/^attempt 2, again, /).waitFor();
      await node_of(/^before, /).click();
      const wide = { width: 1180, height: 780 };
      for (const [look, size, colorScheme] of [['light', wide, 'light'], ['dark', wide, 'dark'], ['phone', { width: 390, height: 1400 }, 'dark']]) {
        await page.emulateMedia({ colorScheme });
        await page.setViewportSize(size);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), look);
        for (const each of await page.locator('#snapshots-view button:visible').all()) {
          const { x, width } = await each.boundingBox();
          assert.ok(x >= 0 && x + width <= size.width, look);
        }
        const [text, ground] = await page.locator('#tree .name').first().evaluate((each) => [getComputedStyle(each).fill, getComputedStyle(document.documentElement).backgroundColor]);
        assert.notEqual(text, ground);
        await picture(`console-tree-${look}`);
      }
      await page.emulateMedia({ colorScheme: 'light' });
      await page.setViewportSize({ width: 1180, height: 720 });
      await page.unroute(tree);
      await page.locator('#tree [data-id="bg"]').waitFor({ state: 'detached' });
    });

    test('a node that keeps none says so in words, in place of buttons', limit, async () => {
      const taking = at(`/v1/sandbox/${id}/snapshot`);
      const why = 'snapshots of disks are kept by a node that is in no cluster';
      await page.route(taking, (route) => route.fulfill({ status: 403, json: { error: why, code: 'forbidden' } }));
      await button('Snapshot').click();
      await shows(page.getByText(`This node keeps no snapshots: ${why}.`));
      assert.equal(await page.getByRole('tree').count(), 0);
      assert.deepEqual(await page.locator('#snapshots-view button:visible').evaluateAll((all) => all.map((each) => each.id)), ['snapshots-leave']);
      assert.equal(await page.getByRole('alert').isVisible(), false);
      await page.unroute(taking);
    });

    test('of a sandbox that is gone the snapshots are still there, and a look starts nothing', limit, async () => {
      const from = others[2];
      await json_of('POST', `/v1/sandbox/${from}/snapshot`, { name: 'left' });
      for (const each of others) assert.equal((await call('DELETE', `/v1/sandbox/${each}`)).status, 204);
      await page.goto(`${wire.url}/#snapshots/${from}`);
      await page.reload();
      await shows(page.getByText('There is no such sandbox. Its snapshots are still here.'));
      await button('left').click();
      await shows(page.getByRole('heading', { name: 'left' }));
      for (const name of ['Snapshot', 'Fork', 'Roll back to it', 'Roll back to left']) assert.equal(await button(name).count(), 0);
      await button('Delete').click();
      await dialog().getByRole('button', { name: 'Delete' }).click();
      await shows(page.getByText('left was deleted.'));
      await page.getByRole('button', { name: 'Sandboxes' }).click();
      await shows(row_of(id));
      for (const each of others) await row_of(each).waitFor({ state: 'detached' });
      assert.deepEqual(await rows(), [id]);
    });
  });

  test('the keyboard is enough', limit, async () => {
    await tab_to('New sandbox');
    assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), 'none');
    await page.keyboard.press('Enter');
    // The new one has the focus once it runs.
    await page.waitForFunction(
      (old) => /^Terminal in /.test(document.activeElement?.getAttribute('aria-label')) && !document.activeElement.closest(`[data-id="${old}"]`),
      id,
    );
    const made = (await focused()).replace('Terminal in ', '');
    await page.keyboard.press('Enter');
    await connected();
    await type_line(page, 'echo $((40 + 4))');
    await until_shown(page, /^44$/m);
    await page.keyboard.press('Control+Shift+L');
    await page.keyboard.press('Enter');
    await page.waitForFunction((name) => document.activeElement?.getAttribute('aria-label') === name, `Terminal in ${made}`);
    await tab_to(`Delete ${made}`);
    await page.keyboard.press('Enter');
    await shows(page.getByRole('dialog'));
    assert.equal(await focused(), 'Keep it');
    await picture('console-delete');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    assert.equal(await focused(), `Delete ${made}`);
    await page.keyboard.press('Enter');
    await page.keyboard.press('Tab');
    assert.equal(await focused(), 'Delete');
    await page.keyboard.press('Enter');
    await row_of(made).waitFor({ state: 'detached' });
    assert.deepEqual(await rows(), [id]);
  });

  test('a terminal whose sandbox is deleted says so, and starts none', limit, async () => {
    await page.getByRole('button', { name: `Terminal in ${id}` }).click();
    await connected();
    assert.equal((await call('DELETE', `/v1/sandbox/${id}`)).status, 204);
    await shows(page.getByText('This sandbox has been stopped or deleted.'));
    await page.reload();
    await shows(page.getByText('This sandbox has been stopped or deleted.'));
    await page.getByRole('button', { name: 'Sandboxes' }).click();
    await shows(page.getByText('No sandbox is alive on this node.'));
  });

  test('what goes wrong is said, and is over once it is', limit, async () => {
    await page.route('**/console/sandboxes', (route) => route.abort());
    await shows(page.getByRole('alert').getByText('The node does not answer. Trying again'));
    await page.unroute('**/console/sandboxes');
    await page.getByRole('alert').getByText('The node does not answer.').waitFor({ state: 'hidden' });
    await page.route('**/v1/sandbox', (route) => route.fulfill({ status: 503, json: { error: 'no room', code: 'capacity_exceeded' } }));
    await page.getByRole('button', { name: 'New sandbox' }).click();
    await shows(page.getByRole('alert').getByText('no room'));
    await page.unroute('**/v1/sandbox');
    await page.getByRole('button', { name: 'Dismiss' }).click();
  });

  test('who signs out is out', limit, async () => {
    const [{ name, value }] = await page.context().cookies();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await shows(page.getByLabel('API key'));
    assert.deepEqual(await page.context().cookies(), []);
    const again = await fetch(`${wire.url}/console/sandboxes`, { headers: { Cookie: `${name}=${value}`, 'Sec-Fetch-Site': 'same-origin' } });
    assert.equal(again.status, 401);
  });

  test('it asked nobody but its node, and nothing in it went wrong', limit, () => watch.check(wire.url));

  test('it runs no scripts but its own, and loads nothing', limit, async () => {
    const refused = await page.evaluate(async () => {
      const broken = [];
      const all = new Promise((resume) =>
        document.addEventListener('securitypolicyviolation', (event) => broken.push(event.effectiveDirective) === 4 && resume()));
      const added = (tag, more) => document.body.append(Object.assign(document.createElement(tag), more));
      added('script', { textContent: 'window.smuggled = true' });
      added('img', { src: 'http://127.0.0.2:9/x.png' });
      await fetch('http://127.0.0.2:9/').catch(() => {});
      try {
        new WebSocket('ws://127.0.0.2:9/');
      } catch {
        // Refused at once.
      }
      await all;
      return { broken: broken.sort(), smuggled: window.smuggled };
    });
    assert.deepEqual(refused, { broken: ['connect-src', 'connect-src', 'img-src', 'script-src-elem'], smuggled: undefined });
  });
});
