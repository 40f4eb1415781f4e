// Measures what rules about requests cost: a request by way of the broker beside the same one that the gateway passes on, on a
// kept connection and on a new one; downloads; what a broker has of memory; and names without a rule beside a sandbox with none.
// A server is started for it, and nginx behind TLS on this machine. Needs root, nginx, openssl, python3 and curl.
//
//   build/clients/node benchmarks/requests.mjs [--insula PROGRAM] [--pairs N] [--batch N] [--megabytes N] [--sandboxes N]
//
// The two of a pair take turns in random order; the first pair warms up and does not count.
import { execFileSync, spawn } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { once } from 'node:events';
import { parseArgs } from 'node:util';

const { values: options } = parseArgs({ options: {
  insula: { type: 'string', default: 'build/release/insula' }, pairs: { type: 'string', default: '20' }, batch: { type: 'string', default: '300' },
  megabytes: { type: 'string', default: '1024' }, sandboxes: { type: 'string', default: '20' },
} });
const [pairs, batch, megabytes, sandboxes] = ['pairs', 'batch', 'megabytes', 'sandboxes'].map((name) => Number(options[name]));
const names_at = '127.29.3.1', site_at = '127.29.3.2', key = 'key-of-this-benchmark', listen = '127.0.0.1:8779', url = `http://${listen}`;
const files = mkdtempSync('/var/tmp/insula-bench-requests-');

// ---- The site

const openssl = (...words) => execFileSync('openssl', words, { cwd: files, stdio: 'pipe' });
const fresh = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'];
openssl('req', '-x509', ...fresh, '-keyout', 'authority.key', '-out', 'authority.pem', '-subj', '/CN=Authority');
openssl('req', '-x509', ...fresh, '-keyout', 'site.key', '-out', 'site.pem', '-subj', '/CN=site.test', '-CA', 'authority.pem', '-CAkey', 'authority.key', '-addext', 'subjectAltName=DNS:*.site.test', '-addext', 'basicConstraints=critical,CA:FALSE');
execFileSync('truncate', ['-s', `${megabytes}M`, `${files}/big`]);
writeFileSync(`${files}/nginx.conf`, `daemon off; worker_processes 1; pid ${files}/nginx.pid; error_log ${files}/nginx.log; user root;
events { worker_connections 4096; }
http { access_log off; keepalive_requests 10000000; sendfile on; client_body_temp_path ${files}/t1; proxy_temp_path ${files}/t2; fastcgi_temp_path ${files}/t3; uwsgi_temp_path ${files}/t4; scgi_temp_path ${files}/t5;
server { listen ${site_at}:443 ssl; ssl_certificate ${files}/site.pem; ssl_certificate_key ${files}/site.key; ssl_session_cache off; ssl_session_tickets off;
  location = / { return 200 'ok'; } location /big { root ${files}; } } }\n`);
const nginx = spawn('nginx', ['-c', `${files}/nginx.conf`], { stdio: 'inherit' });
const names = createSocket('udp4');
names.on('message', (asked, from) => {
  let end = 12;
  while (asked[end] !== 0) end += asked[end] + 1;
  const question = asked.subarray(12, end + 5);
  const is_address = question.readUInt16BE(question.length - 4) === 1;
  const head = Buffer.from([asked[0], asked[1], 0x81, 0x80, 0, 1, 0, is_address ? 1 : 0, 0, 0, 0, 0]);
  const address = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...site_at.split('.').map(Number)]);
  names.send(Buffer.concat([head, question, ...(is_address ? [address] : [])]), from.port, from.address);
});
names.bind(53, names_at);

// ---- The server

writeFileSync(`${files}/insula.yaml`, `network: {allow_private: [${site_at}/32], resolvers: [${names_at}], ca_file: ${files}/authority.pem}\n`);
const server = spawn(options.insula, ['serve', '--listen', listen, '--state', `${files}/state`, '--config', `${files}/insula.yaml`], { env: { ...process.env, SANDBOX_API_KEY: key }, stdio: ['ignore', 'pipe', 'ignore'] });
await once(createInterface({ input: server.stdout }), 'line');
const ask = async (method, path, body) => {
  const answer = await fetch(url + path, { method, body: body && JSON.stringify(body), headers: { authorization: `Bearer ${key}` } });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text;
};
const make = async (...rules) => {
  const { id } = JSON.parse(await ask('POST', '/v1/sandbox'));
  await ask('PUT', `/v1/sandbox/${id}/network`, { default: 'deny', rules: [...rules, { action: 'allow', target: 'plain.site.test' }] });
  return id;
};
const run = async (id, ...argv) => {
  const events = await ask('POST', `/v1/sandbox/${id}/exec`, { argv, timeout_ms: 120_000 });
  let out = '', event;
  for (const line of events.split('\n'))
    if (line.startsWith('event: ')) event = line.slice(7);
    else if (line.startsWith('data: ') && event === 'stdout') out += Buffer.from(line.slice(6), 'base64');
  if (!events.includes('"exit_code":0')) throw new Error(events.slice(-400));
  return out;
};

// ---- Inside: times in ms, by name in turns

const client = `
import http.client,json,random,ssl,sys,time
how,count,names=sys.argv[1],int(sys.argv[2]),sys.argv[3:]
context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); context.check_hostname=False; context.verify_mode=ssl.CERT_NONE
kept={n:http.client.HTTPSConnection(n,context=context) for n in names}
def one(n):
  c=kept[n] if how=='kept' else http.client.HTTPSConnection(n,context=context)
  began=time.perf_counter()
  if how=='connect': c.connect()
  else: c.request('GET','/'); c.getresponse().read()
  took=(time.perf_counter()-began)*1000
  if how!='kept': c.close()
  return took
for n in names: one(n)
all={n:[] for n in names}
for _ in range(count):
  for n in random.sample(names,len(names)): all[n].append(one(n))
print(json.dumps({n:sorted(t)[len(t)//2] for n,t in all.items()}))
`;
const measured = async (id, how, count, ...hosts) => JSON.parse(await run(id, 'python3', '-c', client, how, String(count), ...hosts));

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const range = (list) => `${median(list).toFixed(3)} (${Math.min(...list).toFixed(3)} to ${Math.max(...list).toFixed(3)})`;
const say = (row, here, beside, target) => console.log(`${row}\n  here:   ${here}\n  beside: ${beside}\n  target: ${target}`);
const broker_of = () => readdirSync('/proc').filter((pid) => /^\d+$/.test(pid)).filter((pid) => {
  try { const words = readFileSync(`/proc/${pid}/cmdline`, 'utf8'); return words.startsWith('insula-broker') && words.includes(files); } catch { return false; }
});
const cpu_seconds = (pid) => { const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' '); return (Number(fields[11]) + Number(fields[12])) / 100; };

const rule = { action: 'allow', target: 'ruled.site.test', transform: { headers: { authorization: 'Bearer secret' } } };
try {
  const ruled = await make(rule), bare = await make();
  const pair = async (how, count) => {
    const with_rule = [], without = [];
    for (let i = 0; i <= pairs; ++i) {
      const now = await measured(ruled, how, count, 'ruled.site.test', 'plain.site.test');
      if (i > 0) { with_rule.push(now['ruled.site.test']); without.push(now['plain.site.test']); }
    }
    return [with_rule, without];
  };
  const [kept, kept_plain] = await pair('kept', batch);
  say('a request on a kept connection, ms', `${range(kept)}: ${(median(kept) - median(kept_plain)).toFixed(3)} more`, `without a rule: ${range(kept_plain)}`, '0.35 more');
  const [fresh_rule, fresh_plain] = await pair('connect', Math.ceil(batch / 5));
  say('a new TLS connection, ms', `${range(fresh_rule)}: ${(median(fresh_rule) / median(fresh_plain)).toFixed(2)} times`, `to the site itself: ${range(fresh_plain)}`, '1.5 times');
  const [whole, whole_plain] = await pair('new', Math.ceil(batch / 5));
  say('a request on a new connection, ms', `${range(whole)}: ${(median(whole) / median(whole_plain)).toFixed(2)} times`, `without a rule: ${range(whole_plain)}`, 'none');

  const [pid] = broker_of(), rates = { ruled: [], plain: [] }, on_core = [];
  for (let i = 0; i <= 3; ++i)
    for (const name of Math.random() < 0.5 ? ['ruled', 'plain'] : ['plain', 'ruled']) {
      const before = cpu_seconds(pid);
      const took = Number(await run(ruled, 'curl', '-sk', '-o', '/dev/null', '-w', '%{time_total}', '--http1.1', `https://${name}.site.test/big`));
      if (i === 0) continue;
      rates[name].push(megabytes * 8 * 1.048576 / 1000 / took);
      if (name === 'ruled') on_core.push(megabytes * 8 * 1.048576 / 1000 / (cpu_seconds(pid) - before));
    }
  say(`a download of ${megabytes} MiB, Gbit/s`, `${range(rates.ruled)}; by the broker's own CPU time ${range(on_core)}`, `without a rule: ${range(rates.plain)}`, '3 on a core');

  const pss = (which) => { const text = readFileSync(`/proc/${which}/smaps_rollup`, 'utf8'); return (name) => Number(text.match(new RegExp(`^${name}:\\s+(\\d+)`, 'm'))[1]) / 1024; };
  for (let i = 0; i < sandboxes; ++i) await run(await make(rule), 'curl', '-sk', '-o', '/dev/null', 'https://ruled.site.test/');
  const all = broker_of().map((each) => pss(each)('Pss'));
  say(`memory of a broker that has carried a request, ${all.length} of them, MB`, range(all), 'a sandbox without rules has none', '4');

  const here = [], there = [], here_new = [], there_new = [];
  for (let i = 0; i <= pairs; ++i)
    for (const which of Math.random() < 0.5 ? [ruled, bare] : [bare, ruled])
      for (const [how, count, to] of [['kept', batch, which === ruled ? here : there], ['new', Math.ceil(batch / 5), which === ruled ? here_new : there_new]]) {
        const now = await measured(which, how, count, 'plain.site.test');
        if (i > 0) to.push(now['plain.site.test']);
      }
  say('a name without a rule in a sandbox that has some, kept connection, ms', `${range(here)}: ${(median(here) / median(there)).toFixed(3)} times`, `in one without rules: ${range(there)}`, '1.02 times');
  say('the same, new connection, ms', `${range(here_new)}: ${(median(here_new) / median(there_new)).toFixed(3)} times`, `in one without rules: ${range(there_new)}`, '1.02 times');
} finally {
  server.kill('SIGINT');
  await once(server, 'exit');
  nginx.kill('SIGTERM');
  names.close();
  rmSync(files, { recursive: true, force: true });
}
