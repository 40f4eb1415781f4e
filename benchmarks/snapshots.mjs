// Measures snapshots of disks, starts from them, forks and rollback of a running server by its own routes, beside creates
// without a snapshot.
//
//   tests/clients/run build/release/insula build/clients/node benchmarks/snapshots.mjs \
//     [--pairs N] [--burst N] [--rounds N] [--megabytes N] [--files N] [--many N] [--only ROW] [--copies]
//
// --copies measures copies as well: the configuration in INSULA_RUN_CONFIG has to name a place for them. INSULA_URL says where the server is, INSULA_API_KEY with which key, and INSULA_RUN_STATE where its state is, if it is on this machine: then the room that forks take is measured, and, as root, what cp, btrfs and tar need for the same files. The two of a pair take turns in random order; the
// first pair warms up and does not count.
import { execFile, execFileSync } from 'node:child_process';
import { statSync } from 'node:fs';
import { parseArgs, promisify } from 'node:util';

const { values: options } = parseArgs({ options: {
  pairs: { type: 'string', default: '50' }, burst: { type: 'string', default: '100' }, rounds: { type: 'string', default: '5' },
  megabytes: { type: 'string', default: '2048' }, files: { type: 'string', default: '100000' },
  many: { type: 'string', default: '10000' }, copies: { type: 'boolean', default: false }, only: { type: 'string' },
} });
const [pairs, burst, rounds, megabytes, files, many] =
  ['pairs', 'burst', 'rounds', 'megabytes', 'files', 'many'].map((name) => Number(options[name]));
const { INSULA_URL: url, INSULA_API_KEY: key, INSULA_RUN_STATE: state } = process.env;

const ask = async (method, path, body, headers = {}) => {
  const answer = await fetch(url + path, { method, body: body && JSON.stringify(body), headers: { authorization: `Bearer ${key}`, ...headers } });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text;
};
const asked = async (...words) => JSON.parse(await ask(...words));
const exec = async (id, script) => {
  const events = await ask('POST', `/v1/sandbox/${id}/exec`, { argv: ['bash', '-c', script] });
  if (!events.includes('"exit_code":0')) throw new Error(events.slice(-500));
};
const create = async (snapshot) => {
  const { id } = await asked('POST', '/v1/sandbox', undefined, snapshot && { 'insula-snapshot': snapshot });
  await exec(id, 'true');
  return id;
};
const remove = (id) => ask('DELETE', `/v1/sandbox/${id}`);
const take = (id) => asked('POST', `/v1/sandbox/${id}/snapshot`);
const drop = ({ id }) => ask('DELETE', `/v1/snapshot/${id}`);

const timed = async (work) => {
  const began = performance.now();
  const made = await work();
  return { ms: performance.now() - began, made };
};
const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
const told = (list) => {
  const sorted = [...list].sort((a, b) => a - b);
  return `p50 ${quantile(sorted, 0.5).toFixed(1)} ms (${sorted[0].toFixed(1)} to ${sorted.at(-1).toFixed(1)}), p99 ${quantile(sorted, 0.99).toFixed(1)}`;
};
const median = (list) => quantile([...list].sort((a, b) => a - b), 0.5);
/** The file system removes what was deleted by itself, and that is nobody's time. */
const settled = () => new Promise((go) => setTimeout(go, 100));
const inPairs = async (one, other) => {
  const times = { one: [], other: [] };
  for (let i = 0; i <= pairs; ++i)
    for (const which of Math.random() < 0.5 ? ['one', 'other'] : ['other', 'one']) {
      await settled();
      const ms = await (which === 'one' ? one() : other());
      if (i > 0) times[which].push(ms);
    }
  return times;
};
/** The buckets of the pauses so far. */
const pauses = async () => {
  const lines = (await ask('GET', '/metrics')).split('\n').filter((each) => each.startsWith('insula_disk_snapshot_pause_seconds_bucket'));
  return lines.map((each) => ({ below: Number(/le="([^"]+)"/.exec(each)[1].replace('+Inf', 'Infinity')), count: Number(each.split(' ').at(-1)) }));
};
/** The bound of the bucket that the quantile of those since `before` is in, in ms. */
const pauseSince = (before, after, q) => {
  const counts = after.map((each, i) => each.count - before[i].count);
  return 1000 * after[counts.findIndex((each) => each >= q * counts.at(-1))].below;
};
const say = (row, here, target, beside = '') => console.log(`${row}\n  here:   ${here}\n${beside && `  beside: ${beside}\n`}  target: ${target}`);

const fill = `mkdir -p many && cd many && for d in $(seq ${Math.ceil(files / 1000)}); do mkdir $d; (cd $d; seq 1000 | xargs touch); done;
  head -c ${megabytes}M /dev/urandom > ../large; sync`;
let last; // The snapshot that the source began with.

/** What it takes beside `many` snapshots of so many other sandboxes. */
const beside = async (sandboxes) => {
  const id = await create();
  const memory = async () => Number(/^process_resident_memory_bytes (\S+)/m.exec(await ask('GET', '/metrics'))?.[1] ?? NaN) / 2 ** 20;
  const measure = async () => {
    const takes = [], starts = [], forks = [];
    for (let i = 0; i < pairs; ++i) {
      const taken = await timed(() => take(id));
      const begun = await timed(() => create(taken.made.id));
      const forked = await timed(() => asked('POST', `/v1/sandbox/${id}/fork`, {}));
      await Promise.all([begun.made, forked.made.sandboxes[0].id].map(remove));
      [[takes, taken], [starts, begun], [forks, forked]].forEach(([list, { ms }]) => list.push(ms));
    }
    return { takes, starts, forks, memory: await memory() };
  };
  const before = await measure();
  const others = sandboxes === 1 ? [id] : await Promise.all(Array.from({ length: sandboxes }, () => create()));
  for (let i = 0; i < many; ++i) await take(others[i % others.length]);
  if (sandboxes > 1) await Promise.all(others.map(remove));
  await new Promise((go) => setTimeout(go, 60_000)); // The actors of the last ones rest.
  const after = await measure();
  for (const what of ['takes', 'starts', 'forks'])
    say(`${what} beside ${many} snapshots of ${sandboxes} sandboxes`, told(after[what]), `1.5 times; here ${(median(after[what]) / median(before[what])).toFixed(2)} times`,
      `without them: ${told(before[what])}`);
  say(`memory of the server beside ${many} snapshots of ${sandboxes} sandboxes`, `${after.memory.toFixed(0)} MB`, 'flat', `without them: ${before.memory.toFixed(0)} MB`);
  await remove(id);
};

const rows = {
  /** Of a sandbox that has much, and nothing dirty; then while it writes. */
  async snapshot(source) {
    for (const [name, writes, target] of [
      ['nothing dirty', '', '20 ms; pause 5 ms p50, 20 ms p99'],
      ['a writer at 100 MB/s', 'while :; do dd if=/dev/zero of=w bs=1M count=10 2> /dev/null; sleep 0.09; done', 'pause 20 ms p50']]) {
      if (writes) await exec(source, `cd /workspace; (${writes}) > /dev/null 2>&1 & echo $! > pid`);
      const before = await pauses(), times = [];
      for (let i = 0; i < pairs; ++i) {
        const { ms, made } = await timed(() => take(source));
        times.push(ms);
        await drop(made);
      }
      const after = await pauses();
      if (writes) await exec(source, 'kill $(cat /workspace/pid); rm -f /workspace/w');
      say(`snapshot of ${megabytes} MB and ${files} files, ${name}`,
        `${told(times)}; pause below ${pauseSince(before, after, 0.5)} ms p50, ${pauseSince(before, after, 0.99)} ms p99`, target);
    }
  },
  async start(source) {
    const snapshot = await take(source);
    const one = async (from) => {
      const { ms, made } = await timed(() => create(from));
      await remove(made);
      return ms;
    };
    const times = await inPairs(() => one(snapshot.id), () => one());
    say('start from that snapshot, until a first command has ended', told(times.one),
      `a create + 3 ms; here ${(median(times.one) - median(times.other)).toFixed(1)} ms more`, `a create: ${told(times.other)}`);
    await drop(snapshot);
  },
  async fork(source) {
    const one = async () => {
      const { ms, made } = await timed(async () => {
        const { sandboxes: [{ id }] } = await asked('POST', `/v1/sandbox/${source}/fork`, {});
        await exec(id, 'true');
        return id;
      });
      await remove(made);
      return ms;
    };
    const other = async () => {
      const { ms, made } = await timed(() => create());
      await remove(made);
      return ms;
    };
    const times = await inPairs(one, other);
    say('one fork of the running sandbox, until a first command has ended', told(times.one),
      `a create + 15 ms; here ${(median(times.one) - median(times.other)).toFixed(1)} ms more`, `a create: ${told(times.other)}`);
  },
  async burst(source) {
    const forks = [], creates = [];
    for (let i = 0; i < rounds; ++i) {
      const { ms, made } = await timed(() => asked('POST', `/v1/sandbox/${source}/fork`, { count: burst }));
      forks.push(ms);
      await Promise.all(made.sandboxes.map(({ id }) => exec(id, 'test -d /workspace')));
      await Promise.all(made.sandboxes.map(({ id }) => remove(id)));
      const others = await timed(() => Promise.all(Array.from({ length: burst }, () => create())));
      creates.push(others.ms);
      await Promise.all(others.made.map(remove));
    }
    say(`${burst} forks in one request, until all run`, told(forks), '600 ms, all of them', `${burst} creates at once, with a first command: ${told(creates)}`);
  },
  /** What forks that write nothing take of the machine's disk. */
  async room(source) {
    if (!state) return;
    const bytes = () => {
      execFileSync('sync');
      return statSync(`${state}/disk.btrfs`).blocks * 512;
    };
    await asked('POST', `/v1/sandbox/${source}/fork`, {}).then(({ sandboxes: [{ id }] }) => remove(id));
    const before = bytes();
    const { sandboxes } = await asked('POST', `/v1/sandbox/${source}/fork`, { count: burst });
    const after = bytes();
    await Promise.all(sandboxes.map(({ id }) => remove(id)));
    say(`room of a fork of ${megabytes} MB that writes nothing`, `${((after - before) / burst / 2 ** 20).toFixed(2)} MB, of ${burst}`, '1 MB');
  },
  /** The same files in a file system of the same kind, by the tools that one knows. */
  async tools() {
    if (!state || process.getuid() !== 0) return;
    const script = `set -e; here=$1; truncate -s ${4 * megabytes + 4096}M $here/tools.btrfs; mkfs.btrfs -q $here/tools.btrfs; mkdir $here/tools
      mount -o loop $here/tools.btrfs $here/tools; cd $here/tools; btrfs -q subvolume create source; mkdir source/many; cd source/many
      for d in $(seq ${Math.ceil(files / 1000)}); do mkdir $d; (cd $d; seq 1000 | xargs touch); done; head -c ${megabytes}M /dev/urandom > ../large; cd ../..; sync
      ms() { local began=$(date +%s%N); "$@"; echo $((($(date +%s%N) - began) / 1000)); }
      for i in $(seq ${rounds}); do
        echo "cp $(ms cp -a --reflink=always source copy)"; rm -rf copy; sync
        echo "btrfs $(ms btrfs -q subvolume snapshot source copy)"; btrfs -q subvolume delete -c copy
        echo "tar $(ms tar -C source -cf $here/tools.tar .)"; rm $here/tools.tar
      done; cd /; umount $here/tools; rm -r $here/tools*`;
    const { stdout } = await promisify(execFile)('unshare', ['-m', 'bash', '-c', script, '-', state]);
    const lines = stdout.trim().split('\n');
    const source = await create();
    await exec(source, fill);
    const times = [];
    for (let i = 0; i < rounds; ++i) {
      const { ms, made } = await timed(() => take(source));
      times.push(ms);
      await drop(made);
    }
    await remove(source);
    const of = (tool) => told(lines.filter((each) => each.startsWith(`${tool} `)).map((each) => Number(each.split(' ')[1]) / 1000));
    say(`snapshot of ${megabytes} MB and ${files} files, beside tools`, told(times), 'none',
      `cp -a --reflink: ${of('cp')}; btrfs subvolume snapshot: ${of('btrfs')}; tar: ${of('tar')}`);
  },
  /** As a stop with a snapshot and the next start have it. */
  async resume(source) {
    const times = [];
    for (let i = 0; i < rounds; ++i) {
      const { ms, made } = await timed(async () => {
        const { id } = await take(source);
        await asked('POST', `/v1/sandbox/${source}/rollback`, { snapshot: id });
        return id;
      });
      times.push(ms);
      if (i > 0) await drop({ id: last });
      last = made;
    }
    say(`snapshot, stop and start of ${megabytes} MB and ${files} files`, told(times), '150 ms');
  },
  async rollback(source) {
    const id = await create();
    const snapshot = await take(id), times = [];
    for (let i = 0; i < pairs; ++i) times.push((await timed(() => asked('POST', `/v1/sandbox/${id}/rollback`, { snapshot: snapshot.id }))).ms);
    say('rollback of a running sandbox, until it runs again', told(times), 'stop and resume: 150 ms');
    await remove(id);
    await drop(snapshot);
  },
  /** The same before and after there are very many on the node. */
  many: () => beside(100),
  /** All of one sandbox: a chain, in which each comes from the one before. */
  chain: () => beside(1),
  /** Until the copy of a snapshot is there: of all, and with 1 % of it changed. */
  async copy(source) {
    if (!options.copies) return;
    const copied = async () => {
      const { ms, made } = await timed(async () => {
        const { id } = await take(source);
        while (!(await asked('GET', `/v1/snapshot/${id}`)).shared) await new Promise((go) => setTimeout(go, 5));
        return { id };
      });
      return { ms, made };
    };
    const whole = await copied(), times = [], reads = [], walks = [], all = [whole.made];
    for (let i = 0; i < rounds; ++i) {
      await exec(source, `head -c ${Math.ceil(megabytes / 100)}M /dev/urandom > /workspace/changed; sync`);
      const { ms, made } = await copied();
      times.push(ms);
      all.push(made); // It is what the next copy shares with.
      // A sandbox that begins with the snapshot knows as little of its files as the reader of the copy.
      const { id } = await asked('POST', '/v1/sandbox', undefined, { 'insula-snapshot': made.id });
      await exec(id, 'true');
      reads.push((await timed(() => exec(id, 'cat /workspace/changed > /dev/null'))).ms);
      walks.push((await timed(() => exec(id, "find /workspace -printf '%i %s %T@\\n' > /dev/null"))).ms);
      await remove(id);
    }
    say(`copy of 1 % of ${megabytes} MB and ${files} files`, told(times), `3 times the reading of 1 %, and a walk of the names: ${(3 * median(reads) + median(walks)).toFixed(0)} ms`,
      `reading 1 %: ${told(reads)}; a walk: ${told(walks)}; the first copy of all: ${whole.ms.toFixed(0)} ms`);
    for (const each of all) await drop(each);
  },
};

const source = await create();
await exec(source, fill);
for (const [name, measure] of Object.entries(rows))
  if (!options.only || options.only === name) await measure(source);
await remove(source);
