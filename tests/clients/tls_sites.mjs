// Sites behind TLS on this machine for tests of requests with rules: a DNS server, an authority with certificates, and servers
// at loopback addresses that nothing else has.
import { execFileSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { readFile } from 'node:fs/promises';
import { createSecureServer } from 'node:http2';
import { createServer } from 'node:tls';

/** A DNS server at `at`. `address_of`: that of a name of site.test, without ".site.test"; undefined: it is nowhere. */
export function serve_names(at, address_of) {
  const zone = '\x04site\x04test';
  const socket = createSocket('udp4');
  socket.on('message', (asked, from) => {
    let end = 12;
    const words = [];
    for (; asked[end] !== 0; end += asked[end] + 1) words.push(asked.toString('latin1', end + 1, end + 1 + asked[end]));
    const question = asked.subarray(12, end + 5);
    const wants_ipv4 = question.readUInt16BE(question.length - 4) === 1;
    const found = wants_ipv4 && asked.subarray(12, end).toString('latin1').endsWith(zone) ? address_of(words.slice(0, -2).join('.')) : undefined;
    const head = Buffer.from([asked[0], asked[1], 0x81, 0x80, 0, 1, 0, found ? 1 : 0, 0, 0, 0, 0]);
    const address = found ? Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, ...found.split('.').map(Number)]) : Buffer.alloc(0);
    socket.send(Buffer.concat([head, question, address]), from.port, from.address);
  });
  return new Promise((resume) => { socket.bind(53, at, () => resume(socket)); });
}

const fresh = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
const openssl = (at, ...words) => execFileSync('openssl', words, { cwd: at, stdio: 'pipe' });
const pair = async (at, name) => ({ key: await readFile(`${at}/${name}.key`), cert: await readFile(`${at}/${name}.pem`) });

/** In that directory: authority.pem, whose certificate for all names of site.test is the answer. */
export async function make_certificates(at) {
  openssl(at, 'req', '-x509', ...fresh, '-days', '2', '-keyout', 'authority.key', '-out', 'authority.pem', '-subj', '/CN=Authority of this test');
  return make_certificate(at, 'site', '*.site.test');
}

/** Of that authority, in the same directory. `days`: below 0 it has expired. */
export async function make_certificate(at, file, name, days = 2) {
  openssl(at, 'req', '-new', ...fresh, '-keyout', `${file}.key`, '-out', `${file}.csr`, '-subj', '/CN=site.test', '-addext', `subjectAltName=DNS:${name}`,
    '-addext', 'basicConstraints=critical,CA:FALSE');
  openssl(at, 'x509', '-req', '-in', `${file}.csr`, '-out', `${file}.pem`, '-CA', 'authority.pem', '-CAkey', 'authority.key', '-days', String(days), '-copy_extensions', 'copy');
  return pair(at, file);
}

export async function make_self_signed(at, file, name) {
  openssl(at, 'req', '-x509', ...fresh, '-days', '2', '-keyout', `${file}.key`, '-out', `${file}.pem`, '-subj', '/CN=site.test', '-addext', `subjectAltName=DNS:${name}`);
  return pair(at, file);
}

const listen = (server, at) => new Promise((resume, fail) => { server.on('error', fail).listen(443, at, () => resume(server)); });

/** HTTP/1.1 and HTTP/2. `answer(request, response)` may be asynchronous. */
export function serve_sites(at, certificate, answer) {
  return listen(createSecureServer({ ...certificate, allowHTTP1: true }, (request, response) => {
    Promise.resolve(answer(request, response)).catch((why) => { response.destroy?.(why); });
  }), at);
}

/** Bytes: `on_client(socket)` has each connection. `options` of node:tls. */
export function serve_bytes(at, options, on_client) {
  return listen(createServer({ ALPNProtocols: ['http/1.1'], ...options }, (socket) => {
    socket.on('error', () => {});
    on_client(socket);
  }), at);
}
