// An S3 service in a directory, for tests: s3_server.mjs <directory> <port> <key> <secret> <bucket>...
// Port 0 takes any free one. Says "ready on <port>" and serves until it is ended, or its parent has gone. s3rver does the
// work, but for what it lacks: it lets in whoever signs nothing, or with another secret, and it copies no part of a large
// object, which s3fs does when such a file gets another name or grows.
import crypto, { createHash, createHmac } from 'node:crypto';
import { createServer } from 'node:http';

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
const answer = service.callback();

function answer_xml(response, status, text) {
  const fields = { 'Content-Type': 'application/xml', Connection: status === 200 ? 'keep-alive' : 'close' };
  response.writeHead(status, fields).end(`<?xml version="1.0" encoding="UTF-8"?>\n${text}`);
}

async function copy_part({ url, headers }, response) {
  const { pathname, searchParams } = new URL(url, 'http://here');
  const [bucket, ...key] = decodeURIComponent(headers['x-amz-copy-source']).replace(/^\//, '').split('/');
  const [, start, end] = /^bytes=(\d+)-(\d+)$/.exec(headers['x-amz-copy-source-range'] ?? '') ?? [];
  const range = start === undefined ? undefined : { start: Number(start), end: Number(end) };
  const object = await service.store.getObject(bucket, key.join('/'), range);
  if (!object) return answer_xml(response, 404, '<Error><Code>NoSuchKey</Code></Error>');
  const [, into] = decodeURIComponent(pathname).split('/');
  const { md5 } = await service.store.putPart(
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
