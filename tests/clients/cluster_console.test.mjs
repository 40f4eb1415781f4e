// The console of a cluster in a real browser, at a node that has no sandbox itself: INSULA_URL says where, INSULA_API_KEY with which
// key, INSULA_GATEWAY how that node is called. INSULA_PICTURES is the folder where pictures of it are left.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { launch_browser, patience_ms, type_line, until_shown, Watch, Wire } from './browser.mjs';

const key = process.env.INSULA_API_KEY;
const gateway = process.env.INSULA_GATEWAY;
assert.ok(process.env.INSULA_URL && key && gateway, 'tests/cluster/through.py starts a cluster and sets what this needs');

const limit = { timeout: 3 * patience_ms };

describe('the console of a cluster', () => {
  let browser;
  let wire;
  let page;
  let id;
  const watch = new Watch();
  const headers = { Authorization: `Bearer ${key}` };
  const call = (method, path) => fetch(wire.url + path, { method, headers });
  const row_of = (which) => page.locator(`tr[data-id="${which}"]`);
  const node_row = (name) => page.locator(`tr[data-node="${name}"]`);
  const owner_of = async (which) =>
    (await (await call('GET', '/v1/cluster')).json()).sandboxes.find((each) => each.id === which)?.node;

  before(async () => {
    wire = await Wire.to(process.env.INSULA_URL);
    browser = await launch_browser();
    page = await (await browser.newContext({ viewport: { width: 1180, height: 720 }, colorScheme: 'light' })).newPage();
    page.setDefaultTimeout(patience_ms);
    watch.page(page);
    await page.goto(wire.url);
    await page.getByLabel('API key').fill(key);
    await page.keyboard.press('Enter');
  }, limit);
  after(async () => {
    await browser?.close();
    await wire?.close();
  }, limit);

  test('it shows the nodes, and how each is', limit, async () => {
    await page.getByText('No sandbox is alive in this cluster.').waitFor();
    const names = (await (await call('GET', '/v1/cluster')).json()).nodes.map((each) => each.name);
    assert.equal(names.length, 3);
    for (const name of names) {
      const state = name === gateway ? 'draining' : 'member';
      await node_row(name).getByText(new RegExp(`^${state}$`)).waitFor();
    }
    await node_row(gateway).getByText(`${gateway} (this one)`).waitFor();
  });

  test('a sandbox is made, and is said to be where it is', limit, async () => {
    await page.getByRole('button', { name: 'New sandbox' }).click();
    const row = page.locator('#rows tr[data-state="running"]');
    await row.waitFor();
    id = await row.getAttribute('data-id');
    const owner = await owner_of(id);
    assert.notEqual(owner, gateway);
    assert.equal(await row_of(id).locator('[data-label="Node"]').textContent(), owner);
    await row_of(id).locator('[data-label="CPU"]').filter({ hasText: /^[\d.]+ %$/ }).waitFor();
    await node_row(owner).getByText(/^1 of \d+$/).waitFor();
  });

  test('so are those of others, at whichever node', limit, async () => {
    const made = [];
    for (let i = 0; i < 4; ++i) {
      made.push((await (await call('POST', '/v1/sandbox')).json()).id);
      assert.equal((await call('GET', `/v1/sandbox/${made[i]}/running`)).status, 200);
    }
    for (const each of made) {
      await row_of(each).waitFor();
      assert.equal(await row_of(each).locator('[data-label="Node"]').textContent(), await owner_of(each));
    }
    if (process.env.INSULA_PICTURES) await page.screenshot({ path: `${process.env.INSULA_PICTURES}/console-cluster.png` });
    for (const each of made) {
      assert.equal((await call('DELETE', `/v1/sandbox/${each}`)).status, 204);
      await row_of(each).waitFor({ state: 'detached' });
    }
  });

  test('a terminal opens in it', limit, async () => {
    await page.getByRole('button', { name: `Terminal in ${id}` }).click();
    await page.getByRole('status').filter({ hasText: /^Connected$/ }).waitFor();
    await type_line(page, 'echo "it is $((6 * 7))"');
    await until_shown(page, /^it is 42$/m);
    await page.getByRole('button', { name: 'Sandboxes' }).click();
  });

  test('the runs of a sandbox at another node are shown', limit, async () => {
    const vercel = async (path, body) => {
      const answer = await fetch(wire.url + path, {
        method: 'POST', headers: { ...headers, 'Content-Type': 'application/json' }, body: JSON.stringify(body),
      });
      assert.equal(answer.status, 200, await answer.clone().text());
      return answer.json();
    };
    const { session } = await vercel('/v2/sandboxes', { projectId: 'prj_console', name: 'main-box', timeout: 600_000, tags: { owner: 'tests' } });
    const other = session.id.slice('sbx_'.length, 'sbx_'.length + 26);
    assert.notEqual(await owner_of(other), gateway);
    await row_of(other).getByText('prj_console / main-box \u00b7 owner: tests').waitFor();
    await row_of(other).getByText(/^run \d+, \d+\smin \d+\ss left$/).waitFor();
    await page.getByRole('button', { name: `Runs of ${other}` }).click();
    const run = page.locator('#run-rows tr');
    await run.getByText('running').waitFor();
    await vercel(`/v2/sandboxes/sessions/${session.id}/stop`, {});
    await run.getByText('stopped').waitFor();
    assert.equal((await call('DELETE', `/v1/sandbox/${other}`)).status, 204);
    await page.getByText('There is no such sandbox.').waitFor();
    await page.getByRole('button', { name: 'Sandboxes' }).click();
    await row_of(id).waitFor();
    await row_of(other).waitFor({ state: 'detached' });
  });

  test('a snapshot is taken at the node of its sandbox, and told of here', limit, async () => {
    await page.getByRole('button', { name: `Snapshots of ${id}` }).click();
    await page.locator('#snapshot-name').fill('from here');
    await page.locator('#take').click();
    await page.locator('#snapshot-rows').getByText('from here').waitFor();
    const all = await (await call('GET', `/v1/sandbox/${id}/snapshots`)).json();
    assert.deepEqual(all.snapshots.map((each) => each.name), ['from here']);
    assert.equal((await call('DELETE', `/v1/snapshot/${all.snapshots[0].id}`)).status, 204);
    await page.getByRole('button', { name: 'Sandboxes' }).click();
    await row_of(id).waitFor();
  });

  test('a node that does not answer is no reason to hide what it has', limit, async () => {
    const owner = await owner_of(id);
    await page.route(`**/console/nodes/${owner}/sandboxes`, (route) => route.abort());
    await row_of(id).getByText('unknown, not answering').waitFor();
    assert.equal(await row_of(id).locator('[data-label="Node"]').textContent(), owner);
    // Among those that there are in all it counts as well.
    const said = await (await call('GET', '/console/sandboxes')).json();
    assert.equal(said.sandboxes.length, 0);
    await page.route('**/console/sandboxes', (route) => route.fulfill({ json: { ...said, next: '7', total: 3 } }));
    await page.locator('#count').getByText(/^1 of 4$/).waitFor();
    await page.unroute('**/console/sandboxes');
    await page.unroute(`**/console/nodes/${owner}/sandboxes`);
    await row_of(id).getByText(/^running$/).waitFor();
  });

  test('it is deleted, and nobody but the node was asked', limit, async () => {
    await page.getByRole('button', { name: `Delete ${id}` }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await row_of(id).waitFor({ state: 'detached' });
    watch.check(wire.url);
  });
});
