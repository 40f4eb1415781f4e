// An S3 service in a directory, for tests: s3_server.mjs <directory> <port> <key> <secret> <bucket>...
// Port 0 takes any free one. Says "ready on <port>" and serves until it is ended, or its parent has gone. s3rver does the
// work, but for what it lacks: it lets in whoever signs nothing, or with another secret, it copies no part of a large
// object, which s3fs does when such a file gets another name or grows, and it says that an object is there while the file
// is still being written.
import crypto, { createHash, createHmac, randomUUID } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { dirname } from 'node:path';
import { pipeline } from 'node:stream/promises';

import S3rver from 's3rver';
import account from 's3rver/lib/models/account.js';

// Its lists of more than a thousand names end in a token made by DES, which OpenSSL 3 has no more; three times the same key
// is that.
for (const make of ['createCipheriv', 'createDecipheriv']) {
  const real = crypto[make];
  crypto[make] = (algorithm, key, iv) =>
    algorithm === 'des' ? real('des-ede3-cbc', Buffer.concat([key, key, key]), iv) : real(algorithm, key, iv);
}

const [directory, port, key, secret, ...buckets] = process.argv.slice(2);
account.DUMMY_ACCOUNT.createKeyPair(key, secret);

const hmac = (with_key, text) => createHmac('sha256', with_key).update(text).digest();
const encoded = (text) =>
  encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);

/// The query as AWS's fourth kind of signature wants it.
function canonical_query(text) {
  const pairs = text.split('&').filter(Boolean).map((pair) => {
    const [name, ...value] = pair.split('=');
    return `${encoded(decodeURIComponent(name))}=${encoded(decodeURIComponent(value.join('=')))}`;
  });
  return pairs.sort().join('&');
}

function is_signed({ method, url, headers }) {
  const field = /^AWS4-HMAC-SHA256 Credential=([^,]+), ?SignedHeaders=([^,]+), ?Signature=(\w+)$/;
  const [, credential, names, signature] = field.exec(headers.authorization ?? '') ?? [];
  if (!signature) return false;
  const [whose, ...scope] = credential.split('/');
  const [path, query = ''] = url.split(/\?(.*)/s);
  const signed = names.split(';').map((name) => `${name}:${(headers[name] ?? '').trim().replace(/ +/g, ' ')}\n`);
  const request = [method, path, canonical_query(query), signed.join(''), names, headers['x-amz-content-sha256']];
  const hash = createHash('sha256').update(request.join('\n')).digest('hex');
  const text = ['AWS4-HMAC-SHA256', headers['x-amz-date'], scope.join('/'), hash].join('\n');
  return whose === key && hmac(scope.reduce(hmac, `AWS4${secret}`), text).toString('hex') === signature;
}

const service = new S3rver({ directory, silent: true, vhostBuckets: false, configureBuckets: buckets.map((name) => ({ name })) });
await service.configureBuckets();
const { store } = service;
const answer = service.callback();

// An object is two or three files: nobody looks at them while somebody else changes them.
let last = Promise.resolve();
function alone(work) {
  const mine = last.then(work);
  last = mine.catch(() => {});
  return mine;
}
for (const name of ['getObject', 'listObjects', 'copyObject', 'deleteObject']) {
  const real = store[name].bind(store);
  store[name] = (...about) => alone(() => real(...about));
}

/// In the file, whole, when it returns.
async function write({ content }, path) {
  const md5 = createHash('md5');
  let size = 0;
  async function* counted(chunks) {
    for await (const chunk of chunks) {
      md5.update(chunk);
      size += chunk.length;
      yield chunk;
    }
  }
  await mkdir(dirname(path), { recursive: true });
  await pipeline(Buffer.isBuffer(content) ? [content] : content, counted, createWriteStream(path));
  return { size, md5: md5.digest('hex') };
}

store.putObject = async (object) => {
  const { bucket, key, metadata } = object;
  const path = store.getResourcePath(bucket, key, 'object');
  const incoming = `${store.getResourcePath(bucket, undefined, 'uploads')}/${randomUUID()}`;
  try {
    const written = await write(object, incoming);
    await alone(async () => {
      await mkdir(dirname(path), { recursive: true });
      await rename(incoming, path);
      await store.putMetadata(bucket, key, metadata, written.md5);
    });
    return written;
  } finally {
    await rm(incoming, { force: true });
  }
};

store.putPart = async (bucket, upload, number, content) => {
  const path = `${store.getResourcePath(bucket, undefined, 'uploads')}/${upload}/${number}`;
  const written = await write({ content }, path);
  await writeFile(`${path}.md5`, written.md5);
  return written;
};

function answer_xml(response, status, text) {
  const fields = { 'Content-Type': 'application/xml', Connection: status === 200 ? 'keep-alive' : 'close' };
  response.writeHead(status, fields).end(`<?xml version="1.0" encoding="UTF-8"?>\n${text}`);
}

async function copy_part({ url, headers }, response) {
  const { pathname, searchParams } = new URL(url, 'http://here');
  const [bucket, ...key] = decodeURIComponent(headers['x-amz-copy-source']).replace(/^\//, '').split('/');
  const [, start, end] = /^bytes=(\d+)-(\d+)$/.exec(headers['x-amz-copy-source-range'] ?? '') ?? [];
  const range = start === undefined ? undefined : { start: Number(start), end: Number(end) };
  const object = await store.getObject(bucket, key.join('/'), range);
  if (!object) return answer_xml(response, 404, '<Error><Code>NoSuchKey</Code></Error>');
  const [, into] = decodeURIComponent(pathname).split('/');
  const { md5 } = await store.putPart(
    into, searchParams.get('uploadId'), searchParams.get('partNumber'), object.content);
  const now = new Date().toISOString();
  answer_xml(response, 200, `<CopyPartResult><LastModified>${now}</LastModified><ETag>"${md5}"</ETag></CopyPartResult>`);
}

const refusal = '<Error><Code>SignatureDoesNotMatch</Code>' +
  '<Message>The request signature we calculated does not match the signature you provided.</Message></Error>';

const server = createServer((request, response) => {
  if (!is_signed(request)) answer_xml(response, 403, refusal);
  else if ('x-amz-copy-source' in request.headers && request.url.includes('uploadId='))
    copy_part(request, response).catch((why) => answer_xml(response, 500, `<Error><Message>${why.message}</Message></Error>`));
  else answer(request, response);
});
server.listen(Number(port), '127.0.0.1', () => console.log(`ready on ${server.address().port}`));

const parent = process.ppid;
setInterval(() => process.ppid === parent || process.exit(), 500);
