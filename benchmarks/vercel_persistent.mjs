// Measures the ends and beginnings of sessions of the Vercel Sandbox service of a running server, by its routes: stop with a
// snapshot, resume and fork beside a create with a command, pages of a long list of snapshots, and what stopped sandboxes cost.
//
//   tests/clients/run build/release/insula build/clients/node benchmarks/vercel_persistent.mjs \
//     [--pairs N] [--megabytes N] [--files N] [--many N] [--stopped N] [--only ROW]
//
// INSULA_URL says where the server is, INSULA_API_KEY with which key. The two of a pair take turns in random order; the first pair
// warms up and does not count.
import { parseArgs } from 'node:util';

const { values: options } = parseArgs({ options: {
  pairs: { type: 'string', default: '50' }, megabytes: { type: 'string', default: '2048' }, files: { type: 'string', default: '100000' },
  many: { type: 'string', default: '10000' }, stopped: { type: 'string', default: '1000' }, only: { type: 'string' },
} });
const [pairs, megabytes, files, many, stopped] = ['pairs', 'megabytes', 'files', 'many', 'stopped'].map((name) => Number(options[name]));
const { INSULA_URL: url, INSULA_API_KEY: key } = process.env;

const ask = async (method, path, body) => {
  const answer = await fetch(url + path, { method, body: body && JSON.stringify(body), headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' } });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text;
};
const asked = async (...words) => JSON.parse(await ask(...words));
const project = 'bench', query = `projectId=${project}&teamId=t`;

const run = async (session, command, ...args) => {
  const events = await ask('POST', `/v2/sandboxes/sessions/${session}/cmd?teamId=t`, { command, args, wait: true });
  if (!events.includes('"exitCode":0')) throw new Error(events.slice(-500));
};
const begun = async ({ sandbox }) => {
  await run(sandbox.currentSessionId, 'true');
  return sandbox;
};
const create = async (more = {}) => begun(await asked('POST', '/v3/sandboxes?teamId=t', { projectId: project, ports: [], timeout: 3_600_000, ...more }));
const resume = async (name) => begun(await asked('GET', `/v2/sandboxes/${name}?resume=true&${query}`));
const fork = async (name) => begun(await asked('POST', `/v2/sandboxes/${name}/fork?${query}`, {}));
const stop = ({ currentSessionId }) => asked('POST', `/v2/sandboxes/sessions/${currentSessionId}/stop?teamId=t`);
const remove = ({ name }) => ask('DELETE', `/v2/sandboxes/${name}?deleteOrphanSnapshots=true&${query}`);

const timed = async (work) => {
  const began = performance.now();
  const made = await work();
  return { ms: performance.now() - began, made };
};
const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
const sorted = (list) => [...list].sort((a, b) => a - b);
const median = (list) => quantile(sorted(list), 0.5);
const told = (list) => {
  const all = sorted(list);
  return `p50 ${median(all).toFixed(1)} ms (${all[0].toFixed(1)} to ${all.at(-1).toFixed(1)}), p99 ${quantile(all, 0.99).toFixed(1)}`;
};
/** The file system removes what was deleted by itself, and that is nobody's time. */
const settled = () => new Promise((go) => setTimeout(go, 100));
const say = (row, here, target, beside = '') => console.log(`${row}\n  here:   ${here}\n${beside && `  beside: ${beside}\n`}  target: ${target}`);

const fill = `mkdir -p many && cd many && for d in $(seq ${Math.ceil(files / 1000)}); do mkdir $d; (cd $d; seq 1000 | xargs touch); done;
  head -c ${megabytes}M /dev/urandom > ../large; sync`;
const oneCreate = async () => {
  const { ms, made } = await timed(() => create({ persistent: false }));
  await remove(made);
  return ms;
};

/** Stops and resumes, each with a create in random order. */
const cycle = async (what, box) => {
  const stops = [], resumes = [], creates = [];
  let now = box;
  for (let i = 0; i <= pairs; ++i) {
    await settled();
    const ended = await timed(() => stop(now));
    const times = {};
    for (const which of Math.random() < 0.5 ? ['resume', 'create'] : ['create', 'resume']) {
      await settled();
      if (which === 'create') times.create = await oneCreate();
      else ({ ms: times.resume, made: now } = await timed(() => resume(box.name)));
    }
    if (i > 0) [[stops, ended.ms], [resumes, times.resume], [creates, times.create]].forEach(([list, ms]) => list.push(ms));
  }
  say(`stop with a snapshot, ${what}`, told(stops), '150 ms');
  say(`resume until a first command has ended, ${what}`, told(resumes), `1.2 times a create with a command; here ${(median(resumes) / median(creates)).toFixed(2)} times`,
    `a create: ${told(creates)}`);
  return now;
};

const rows = {
  async cycle() {
    const small = await create({ keepLastSnapshots: { count: 2 } });
    await remove(await cycle('an empty sandbox', small));
    const large = await create({ keepLastSnapshots: { count: 2 } });
    await run(large.currentSessionId, 'sh', '-c', fill);
    await stop(await resume(large.name)); // All of that is on the disk by now.
    const now = await cycle(`of ${megabytes} MB and ${files} files`, await resume(large.name));
    await stop(now);
    const forks = [], creates = [];
    for (let i = 0; i <= pairs; ++i)
      for (const which of Math.random() < 0.5 ? ['fork', 'create'] : ['create', 'fork']) {
        await settled();
        const { ms, made } = await timed(() => (which === 'fork' ? fork(large.name) : create({ persistent: false })));
        await remove(made);
        if (i > 0) (which === 'fork' ? forks : creates).push(ms);
      }
    say(`fork of that until a first command has ended`, told(forks), `1.2 times a create with a command; here ${(median(forks) / median(creates)).toFixed(2)} times`, `a create: ${told(creates)}`);
    await remove(now);
  },

  /** A page of the project's snapshots, of those of one sandbox, and the same from the oldest on. */
  async list() {
    const boxes = await Promise.all(Array.from({ length: 20 }, () => create()));
    for (let i = 0; i < many; ++i)
      await ask('POST', `/v2/sandboxes/sessions/${boxes[i % boxes.length].currentSessionId}/snapshot?teamId=t`, { __insula: { keepRunning: true } });
    for (const [what, more] of [['of the project', ''], ['of the project, the oldest first', '&sortOrder=asc'], ['of one sandbox', `&name=${boxes[0].name}`]]) {
      const times = [];
      let count = 0;
      for (let next = ''; next !== null;) {
        const { ms, made } = await timed(() => asked('GET', `/v2/sandboxes/snapshots?teamId=t&project=${project}&limit=50${more}${next && `&cursor=${next}`}`));
        times.push(ms);
        count += made.snapshots.length;
        next = made.pagination.next;
      }
      say(`a page of 50 of ${count} snapshots ${what}`, told(times), '5 ms');
    }
    await Promise.all(boxes.map(remove));
  },

  /** Processes are those of the machine: nothing else starts or ends any. */
  async stopped() {
    const memory = async () => Number(/^process_resident_memory_bytes (\S+)/m.exec(await ask('GET', '/metrics'))?.[1] ?? NaN) / 2 ** 20;
    const { readdirSync } = await import('node:fs');
    const processes = () => readdirSync('/proc').filter((each) => /^\d+$/.test(each)).length;
    const before = { memory: await memory(), processes: processes() };
    const boxes = [];
    for (let i = 0; i < stopped; ++i) {
      const box = await create();
      await stop(box);
      boxes.push(box);
    }
    await new Promise((go) => setTimeout(go, 60_000)); // The actors of the last ones rest.
    const after = { memory: await memory(), processes: processes() };
    say(`${stopped} stopped sandboxes`, `${((after.memory - before.memory) * 1024 / stopped).toFixed(1)} KiB of the server's memory each, ${after.processes - before.processes} processes`,
      'their records, and no process', `the server: ${before.memory.toFixed(0)} MB before, ${after.memory.toFixed(0)} MB after`);
    const list = await timed(() => asked('GET', `/v2/sandboxes?teamId=t&project=${project}&limit=50`));
    say('a page of 50 of them', `${list.ms.toFixed(1)} ms`, '5 ms');
    for (const box of boxes) await remove(box);
  },
};

for (const [name, row] of Object.entries(rows)) if (!options.only || options.only === name) await row();
