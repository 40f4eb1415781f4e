// The page of the Vercel Sandbox service has each feature by its number, beside tests that have the number in their name.
// INSULA_DOCUMENT is the page.
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'node:test';

const features = 192;
const here = new URL('./', import.meta.url);

/** The numbers in a text, where `V001 to V003` are three. */
function numbers(text) {
  const all = [];
  for (const [, first, last = first] of text.matchAll(/V(\d{3})(?: to V(\d{3}))?/g))
    for (let each = Number(first); each <= Number(last); ++each) all.push(each);
  return all;
}
const missing = (found) => Array.from({ length: features }, (_, i) => i + 1).filter((each) => !found.has(each));

test('each feature has a test by its number', async () => {
  const found = new Set();
  for (const file of (await readdir(here)).filter((name) => /^vercel.*\.test\.mjs$/.test(name)))
    for (const [, inName, inComment] of (await readFile(new URL(file, here), 'utf8')).matchAll(/\btest\(['`](V\d{3}[^'`]*)|\/\/ (V\d{3}[^\n]*)/g))
      for (const each of numbers(inName ?? inComment)) found.add(each);
  assert.deepEqual(missing(found), []);
});

test('each feature is in the page, once, with its test', async () => {
  const [, table] = /\n\| Features \|.*\n\| --- .*\n((?:\|.*\n)+)/.exec(await readFile(process.env.INSULA_DOCUMENT, 'utf8'));
  const found = [];
  for (const row of table.trim().split('\n')) {
    const [, which, , by] = row.split('|');
    assert.match(by, /`clients: vercel/, row);
    const own = numbers(which);
    found.push(...own);
    for (const each of numbers(by)) assert.ok(own.includes(each), row);
  }
  assert.deepEqual(found, Array.from({ length: features }, (_, i) => i + 1));
});
