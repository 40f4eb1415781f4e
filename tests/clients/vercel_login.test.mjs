// `sandbox login` of the command line of the Vercel Sandbox service, on a terminal, and the page on which it is confirmed, in a
// real browser: INSULA_URL says where the server is, INSULA_API_KEY with which key. INSULA_CHROMIUM is the browser.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

import { launch_browser, patience_ms, Watch } from './browser.mjs';

const { INSULA_URL: url, INSULA_API_KEY: key } = process.env;
assert.ok(url && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 180_000 };
const command = new URL('node_modules/sandbox/bin/sandbox.mjs', import.meta.url).pathname;
let home, around, browser;

before(async () => {
  home = await mkdtemp('/var/tmp/insula-login-');
  await writeFile(join(home, 'insula-vercel.mjs'), await (await fetch(`${url}/insula-vercel.mjs`)).text());
  around = {
    PATH: process.env.PATH, HOME: home, TMPDIR: home, TERM: 'xterm', SHELL: '/bin/sh', INSULA_URL: url, NODE_OPTIONS: `--import=${join(home, 'insula-vercel.mjs')}`,
    SANDBOX_SKIP_VERSION_CHECK: '1', VERCEL_SANDBOX_TELEMETRY_DISABLED: '1',
  };
  browser = await launch_browser();
});
after(async () => {
  await browser?.close();
  await rm(home, { recursive: true, force: true });
});

/** On a terminal of its own, where it shows its code. Of one without a width it makes nothing. */
function start(words) {
  const child = spawn('script', ['-qefc', `stty cols 200 rows 40; exec '${process.execPath}' '${command}' ${words}`, '/dev/null'], { env: around, cwd: home, stdio: ['pipe', 'pipe', 'inherit'] });
  const is = { child, said: '' };
  child.stdout.setEncoding('utf8').on('data', (some) => { is.said += some; });
  is.end = once(child, 'close').then(([code]) => ({ code, said: is.said }));
  return is;
}
/** The code and the address of a sign-in that it shows. */
async function shown(by) {
  for (;; await delay(50)) {
    const code = /[B-T]{4}-[B-T]{4}/.exec(by.said);
    const at = /https?:\/\/[^\s\x07\x1b]+\/device\?user_code=[B-T-]+/.exec(by.said);
    if (code && at) return { code: code[0], at: at[0] };
    assert.equal(by.child.exitCode, null, by.said);
  }
}
const run = (words) => start(words).end;

describe('sandbox login', { concurrency: 1 }, () => {
  test('a holder of the key confirms it in the browser, and the command line has a token of one project', limit, async () => {
    const login = start('login');
    const { code, at } = await shown(login);
    assert.ok(at.startsWith(`${url}/device?`), at);
    const page = await browser.newPage();
    page.setDefaultTimeout(patience_ms);
    const watch = new Watch();
    watch.page(page);
    await page.goto(at);
    await page.getByLabel('Key of this node').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('This is not the key.').waitFor();
    await page.getByLabel('Key of this node').fill(key);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText(`its code is ${code}`).waitFor();
    assert.equal(await page.getByLabel('Team').inputValue(), 'team_insula');
    assert.equal(await page.getByLabel('Project').inputValue(), 'vercel-sandbox-default-project');
    await page.getByLabel('Days').fill('3');
    await page.getByRole('button', { name: 'Allow' }).click();
    await page.getByText('The command line is signed in.').waitFor();
    watch.check(url);
    await page.close();

    const { code: status, said } = await login.end;
    assert.equal(status, 0, said);
    assert.match(said, /You are now signed in\.[^]*team: .*team_insula[^]*project: .*vercel-sandbox-default-project/);
    const kept = JSON.parse(await readFile(join(home, '.local/share/com.vercel.cli/auth.json'), 'utf8'));
    assert.match(kept.token, /^insula_/);
    assert.ok(Math.abs(kept.expiresAt - (Date.now() / 1000 + 3 * 86400)) < 600);
    assert.equal(kept.refreshToken, undefined);
    assert.equal((await run('create --name by-login --non-persistent')).code, 0);
    assert.match((await run('exec by-login echo hello')).said, /^hello\r$/m);
    assert.equal((await run('rm by-login')).code, 0);
    // The token is for its project alone.
    assert.notEqual((await run('ls --scope team_insula --project other')).code, 0);
    assert.equal((await fetch(`${url}/v1/sandboxes`, { headers: { authorization: `Bearer ${kept.token}` } })).status, 401);
  });

  test('logout forgets the token', limit, async () => {
    const { code, said } = await run('logout');
    assert.equal(code, 0, said);
    assert.match(said, /Logged out!/);
    assert.deepEqual(JSON.parse(await readFile(join(home, '.local/share/com.vercel.cli/auth.json'), 'utf8')), {});
  });

  test('a sign-in that is refused ends the command line with the reason', limit, async () => {
    const login = start('login');
    const { code } = await shown(login);
    const page = await browser.newPage();
    page.setDefaultTimeout(patience_ms);
    await page.goto(`${url}/device`);
    await page.getByLabel('Code that').fill('BBBB-BBBB');
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByLabel('Key of this node').fill(key);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('No sign-in waits with this code.').waitFor();
    await page.getByLabel('Code that').fill(code.toLowerCase().replace('-', ' '));
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('button', { name: 'Refuse' }).click();
    await page.getByText('The sign-in is refused.').waitFor();
    await page.close();
    const { code: status, said } = await login.end;
    assert.equal(status, 1, said);
    assert.match(said, /access_denied: The sign-in was refused\./);
  });
});
