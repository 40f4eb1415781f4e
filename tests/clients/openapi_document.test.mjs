// What `insula --openapi` prints, judged by somebody else's schema of OpenAPI: INSULA_PROGRAM is the program.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { describe, test } from 'node:test';

import { Validator } from '@seriousme/openapi-schema-validator';
import Ajv2020 from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';

const program = process.env.INSULA_PROGRAM;
assert.ok(program, 'INSULA_PROGRAM is not set');
const said = JSON.parse(execFileSync(program, ['--openapi'], { encoding: 'utf8' }));

/// Each operation with its path and method.
const operations = Object.entries(said.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ path, method, ...operation })),
);

/// What a reference leads to, or the thing itself.
function followed(what) {
  if (!what.$ref) return what;
  return what.$ref.slice(2).split('/').reduce((at, part) => at[part], said);
}

describe('the OpenAPI document', () => {
  test('it is one, of version 3.1', async () => {
    const validator = new Validator();
    const found = await validator.validate(structuredClone(said));
    assert.deepEqual(found.errors ?? [], []);
    assert.equal(found.valid, true);
    assert.equal(validator.version, '3.1');
  });

  test('every reference leads somewhere', () => {
    const walk = (at) => {
      if (at === null || typeof at !== 'object') return;
      if (typeof at.$ref === 'string') assert.ok(followed(at), at.$ref);
      Object.values(at).forEach(walk);
    };
    walk(said);
  });

  test('each operation has a name of its own, a summary, and a group that is described', () => {
    const ids = operations.map((each) => each.operationId);
    assert.deepEqual(ids.filter((each, at) => ids.indexOf(each) !== at), []);
    const groups = said.tags.map((each) => each.name);
    for (const each of operations) {
      assert.match(each.operationId, /^[a-z][A-Za-z]+$/);
      assert.ok(each.summary.endsWith('.'), each.operationId);
      assert.deepEqual(each.tags.filter((tag) => !groups.includes(tag)), [], each.operationId);
      assert.equal(each.tags.length, 1, each.operationId);
    }
    assert.deepEqual(groups.filter((tag) => !operations.some((each) => each.tags.includes(tag))), []);
  });

  test('each part of a path is a parameter, and no parameter is there twice', () => {
    for (const each of operations) {
      const parts = [...each.path.matchAll(/\{(\w+)\}/g)].map((found) => found[1]);
      const named = (each.parameters ?? []).filter((one) => one.in === 'path').map((one) => one.name);
      assert.deepEqual(named, parts, each.path);
      const all = (each.parameters ?? []).map((one) => `${one.in} ${one.name}`);
      assert.equal(new Set(all).size, all.length, each.operationId);
    }
  });

  test('a sandbox has an id of the same form everywhere', () => {
    const ids = operations.flatMap((each) => each.parameters ?? []).filter((one) => one.name === 'id' && one.in === 'path');
    assert.ok(ids.length > 40);
    for (const each of ids) assert.equal(followed(each.schema).pattern, '^[a-z2-7]{1,128}$');
  });

  test('each example is what its schema takes', () => {
    const ajv = new Ajv2020({ strict: false, allErrors: true });
    addFormats(ajv);
    ajv.addSchema({ $id: 'document', ...said });
    let tried = 0;
    const fits = (where, example, schema) => {
      ++tried;
      assert.ok(ajv.validate(schema, example), `${where}: ${ajv.errorsText()}`);
    };
    for (const [name, schema] of Object.entries(said.components.schemas))
      if (schema.example !== undefined) fits(name, schema.example, { $ref: `document#/components/schemas/${name}` });
    for (const each of operations)
      for (const one of each.parameters ?? [])
        if (one.example !== undefined) fits(`${each.operationId} ${one.name}`, one.example, one.schema);
    assert.ok(tried > 15);
  });

  test('whoever is asked for a key can be refused, and a 404 has a body that says why', () => {
    for (const each of operations) {
      if (each.security?.length !== 0) assert.ok(each.responses['401'], each.operationId);
      const missing = each.responses['404'];
      if (missing) assert.ok(followed(missing).content['application/json'], each.operationId);
    }
  });
});
