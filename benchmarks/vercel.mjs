// Measures the Vercel Sandbox service of a running server by its SDK, beside the same work by the bridge's routes.
//
//   tests/clients/run build/release/insula build/clients/node --import ./http/vercel/insula-vercel.mjs \
//     benchmarks/vercel.mjs [--pairs N] [--burst N] [--rounds N] [--only ROW]
//
// INSULA_URL says where the server is, INSULA_API_KEY with which key, --clients where the SDK is installed. The two of a
// pair take turns in random order; the first pair warms up and does not count.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';

const { values: options } = parseArgs({ options: {
  pairs: { type: 'string', default: '100' }, burst: { type: 'string', default: '100' }, rounds: { type: 'string', default: '5' },
  files: { type: 'string', default: '1000' }, log: { type: 'string', default: '100' }, only: { type: 'string' },
  clients: { type: 'string', default: 'build/clients' },
} });
const [pairs, burst, rounds, fileCount, logMiB] = ['pairs', 'burst', 'rounds', 'files', 'log'].map((name) => Number(options[name]));
const { INSULA_URL: url, INSULA_API_KEY: key } = process.env;
const sdk = createRequire(join(resolve(options.clients), 'package.json')).resolve('@vercel/sandbox');
const { Sandbox } = await import(pathToFileURL(sdk));
const scope = { token: key, teamId: 'bench', projectId: 'bench' };

// ---- The bridge, by the same fetch

const ask = async (method, path, body) => {
  const answer = await fetch(url + path, { method, body, headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' } });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text;
};
const bridge = {
  create: async () => {
    const { id } = JSON.parse(await ask('POST', '/v1/sandbox'));
    await bridge.exec(id, ['true']);
    return id;
  },
  exec: async (id, argv) => {
    const events = await ask('POST', `/v1/sandbox/${id}/exec`, JSON.stringify({ argv }));
    if (!events.includes('event: exit')) throw new Error(events);
  },
  remove: (id) => ask('DELETE', `/v1/sandbox/${id}`),
};

// ---- Measuring

const timed = async (work) => {
  const began = performance.now();
  const made = await work();
  return { ms: performance.now() - began, made };
};
const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
const told = (list) => {
  const sorted = [...list].sort((a, b) => a - b);
  return `p50 ${quantile(sorted, 0.5).toFixed(2)} ms (${sorted[0].toFixed(2)} to ${sorted.at(-1).toFixed(2)}), p99 ${quantile(sorted, 0.99).toFixed(2)}`;
};
const median = (list) => quantile([...list].sort((a, b) => a - b), 0.5);
/** Both, in random order. */
const inPairs = async (count, one, other) => {
  const times = { one: [], other: [] };
  for (let i = 0; i <= count; ++i) {
    const order = Math.random() < 0.5 ? ['one', 'other'] : ['other', 'one'];
    for (const which of order) {
      const ms = await (which === 'one' ? one() : other());
      if (i > 0) times[which].push(ms);
    }
  }
  return times;
};
const say = (row, here, target, beside) => console.log(`${row}\n  here:   ${here}\n  beside: ${beside}\n  target: ${target}`);
const serverPid = () => { // Of the server, which is this program's sibling.
  const parent = process.ppid;
  return readFileSync(`/proc/${parent}/task/${parent}/children`, 'utf8').split(' ').filter(Boolean)
    .find((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')[1] === 'serve');
};
/** MiB: what the server has, or (VmHWM) has had at most since the last time that this was begun anew. */
const serverMemory = (which = 'VmRSS') =>
  Number(new RegExp(`${which}:\\s+(\\d+)`).exec(readFileSync(`/proc/${serverPid()}/status`, 'utf8'))[1]) / 1024;
const beginPeakAnew = () => writeFileSync(`/proc/${serverPid()}/clear_refs`, '5');
/** A server of Node.js's own that answers with so many MiB of such lines, for comparison. */
const plainServer = async (mib) => {
  const script = `const line = JSON.stringify({ stream: 'stdout', data: 'x'.repeat(64 << 10) }) + '\\n', piece = Buffer.from(line.repeat(8));
    require('http').createServer(async (_, to) => {
      for (let i = 0; i < ${2 * mib}; ++i) if (!to.write(piece)) await new Promise((go) => to.once('drain', go));
      to.end();
    }).listen(0, '127.0.0.1', function () { console.log(this.address().port); });`;
  const made = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [port] = await once(made.stdout, 'data');
  return { url: `http://127.0.0.1:${Number(port)}/`, stop: () => made.kill() };
};

/** The archive that writeFiles sends, by the SDK's own writer. */
const packedBySdk = async (files) => {
  const { FileWriter } = await import(pathToFileURL(join(dirname(sdk), 'api-client', 'file-writer.js')));
  const writer = new FileWriter(), pieces = [];
  const read = (async () => { for await (const piece of writer.readable) pieces.push(piece); })();
  for (const { path, content } of files) await writer.addFile({ name: path, content });
  writer.end();
  await read;
  return Buffer.concat(pieces);
};

const rows = {
  create: async () => {
    const times = await inPairs(pairs, async () => {
      const { ms, made } = await timed(() => Sandbox.create(scope));
      await made.delete();
      return ms;
    }, async () => {
      const { ms, made } = await timed(bridge.create);
      await bridge.remove(made);
      return ms;
    });
    const more = median(times.one) - median(times.other);
    say('create', `${told(times.one)}: ${more.toFixed(2)} ms more`, 'at most 5 ms more at p50', `bridge, with \`true\`: ${told(times.other)}`);
  },
  command: async () => {
    const box = await Sandbox.create(scope);
    const id = await bridge.create();
    const times = await inPairs(5 * pairs, async () => (await timed(() => box.runCommand('echo', ['hello']))).ms,
      async () => (await timed(() => bridge.exec(id, ['echo', 'hello']))).ms);
    const more = median(times.one) - median(times.other);
    say("runCommand('echo')", `${told(times.one)}: ${more.toFixed(2)} ms more`, 'at most 1 ms more at p50', `bridge: ${told(times.other)}`);
    await Promise.all([box.delete(), bridge.remove(id)]);
  },
  burst: async () => {
    const atOnce = async (make, remove) => {
      const { ms, made } = await timed(() => Promise.allSettled(Array.from({ length: burst }, make)));
      const good = made.filter((each) => each.status === 'fulfilled');
      if (good.length < burst)
        console.log(`  ${good.length} of ${burst}; ${made.find((each) => each.status === 'rejected').reason}`);
      await Promise.all(good.map((each) => remove(each.value)));
      return ms;
    };
    const times = await inPairs(rounds, () => atOnce(() => Sandbox.create(scope), (box) => box.delete()), () => atOnce(bridge.create, bridge.remove));
    const ratio = median(times.one) / median(times.other);
    say(`${burst} creates at once`, `${told(times.one)}: ${ratio.toFixed(2)} x`, 'at most 1.2 x, all of them', `bridge: ${told(times.other)}`);
  },
  log: async () => {
    const box = await Sandbox.create({ ...scope, timeout: 600_000 });
    const command = await box.runCommand({ cmd: 'sh', args: ['-c', `head -c ${logMiB}M /dev/zero | tr '\\0' x`], detached: true });
    await command.wait();
    const path = `${url}/v2/sandboxes/sessions/${box.currentSession().sessionId}/cmd/${command.cmdId}/logs`;
    const plain = await plainServer(logMiB);
    const speed = async (from) => {
      let bytes = 0;
      const { ms } = await timed(async () => {
        const answer = await fetch(from, { headers: { authorization: `Bearer ${key}` } });
        for await (const chunk of answer.body) bytes += chunk.length;
      });
      if (bytes < logMiB * 1e6) throw new Error(`the log has ${bytes} bytes`);
      return bytes / 1e6 / (ms / 1000);
    };
    const shown = (speeds) => `${median(speeds).toFixed(0)} MB/s (${Math.min(...speeds).toFixed(0)} to ${Math.max(...speeds).toFixed(0)})`;
    for (const kept of [false, true]) {
      if (kept) await box.stop();
      const before = serverMemory();
      beginPeakAnew();
      const speeds = await inPairs(2 * rounds, () => speed(path), () => speed(plain.url));
      say(`GET logs of ${logMiB} MiB${kept ? ', after the stop' : ''}`, shown(speeds.one), 'at least 150 MB/s, memory flat',
        `a server of Node.js with the same bytes: ${shown(speeds.other)}. Memory of the server ${before.toFixed(0)} MiB before, at most ${serverMemory('VmHWM').toFixed(0)} meanwhile`);
    }
    plain.stop();
    await box.delete();
  },
  files: async () => {
    const box = await Sandbox.create({ ...scope, timeout: 600_000 });
    const files = Array.from({ length: fileCount }, (_, i) => ({ path: `d${i % 10}/f${i}`, content: Buffer.from(`file ${i}\n`.repeat(20)) }));
    const place = mkdtempSync(join(tmpdir(), 'insula-bench-'));
    try {
      // What tar unpacks on the host is what the sandbox got.
      await box.writeFiles(files);
      const packed = join(place, 'all.tgz');
      for (const each of files) {
        mkdirSync(join(place, 'from', each.path.split('/')[0]), { recursive: true });
        writeFileSync(join(place, 'from', each.path), each.content);
      }
      execFileSync('tar', ['-czf', packed, '-C', join(place, 'from'), '.']);
      let turn = 0;
      const times = await inPairs(2 * rounds, async () => (await timed(() => box.writeFiles(files))).ms, async () => {
        const to = join(place, `to${turn++}`);
        mkdirSync(to);
        const { ms } = await timed(async () => execFileSync('tar', ['-xzf', packed, '-C', to]));
        return ms;
      });
      const ratio = median(times.one) / median(times.other);
      say(`writeFiles of ${fileCount} small files`, `${told(times.one)}: ${ratio.toFixed(2)} x`, 'at most 2 x', `tar -xz on the host: ${told(times.other)}`);
      // What the SDK does before its last byte is on its way, and what is left when that is done already.
      const archive = await packedBySdk(files);
      const path = `${url}/v2/sandboxes/sessions/${box.currentSession().sessionId}/fs/write`;
      const parts = await inPairs(2 * rounds, async () => (await timed(() => packedBySdk(files))).ms, async () => (await timed(async () => {
        const answer = await fetch(path, { method: 'POST', body: archive, headers: { authorization: `Bearer ${key}`, 'content-type': 'application/gzip', 'x-cwd': '/vercel/sandbox' } });
        if (!answer.ok) throw new Error(await answer.text());
      })).ms);
      say("  of which the SDK's packing, to nowhere", told(parts.one), 'none', `the same archive, packed before, by POST …/fs/write: ${told(parts.other)}`);
    } finally {
      rmSync(place, { recursive: true });
    }
    await box.delete();
  },
};
for (const [name, measure] of Object.entries(rows)) if (!options.only || options.only === name) await measure();
