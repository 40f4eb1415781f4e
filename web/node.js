// What this page asks of its node. Each failure is an Error whose message is for people.

class NodeError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status; // 0: there was no answer.
  }
}

async function ask(method, path, { body, headers, patience_ms = 20_000 } = {}) {
  let answer;
  try {
    answer = await fetch(path, { method, body, headers, redirect: 'error', signal: AbortSignal.timeout(patience_ms) });
  } catch {
    throw new NodeError('The node does not answer.', 0);
  }
  if (answer.status === 204) return null;
  const said = await answer.json().catch(() => null);
  if (answer.ok && said) return said;
  throw new NodeError(said?.error ?? `The node answered with status ${answer.status}.`, answer.status);
}

const is_sandbox_id = (text) => typeof text === 'string' && /^[a-z2-7]{1,128}$/.test(text);

const disk_patience_ms = 200_000; // The node's own patience with a disk ends before.
const page_text = (limit, cursor) => String(new URLSearchParams({ limit, ...(cursor ? { cursor } : {}) }));

const node = {
  list: (after) => ask('GET', `/console/sandboxes${after ? `?after=${after}` : ''}`),
  list_of: (name, patience_ms, after) =>
    ask('GET', `/console/nodes/${encodeURIComponent(name)}/sandboxes${after ? `?after=${after}` : ''}`, { patience_ms }),
  runs: (id, after) => ask('GET', `/console/sandboxes/${id}/runs${after ? `?after=${after}` : ''}`),
  cluster: () => ask('GET', '/v1/cluster'),
  sign_in: (key) => ask('POST', '/console/sign-in', { body: key }),
  sign_out: () => ask('POST', '/console/sign-out'),
  /// `image`: empty for the node's own.
  create: async (image) => (await ask('POST', '/v1/sandbox', { headers: image ? { 'Insula-Image': image } : {} })).id,
  images: () => ask('GET', '/v1/images'),
  pull: (reference) => ask('POST', '/v1/images/pull', { body: JSON.stringify({ reference }), patience_ms: 40_000 }),
  start: (id) => ask('GET', `/v1/sandbox/${id}/running`, { patience_ms: 60_000 }),
  remove: (id) => ask('DELETE', `/v1/sandbox/${id}`, { patience_ms: 60_000 }),
  /// What it is. Nothing is started.
  describe: (id) => ask('GET', `/v1/sandbox/${id}`),
  snapshots: (id, limit, after) => ask('GET', `/v1/sandbox/${id}/snapshots?${page_text(limit, after)}`),
  snapshot: (id) => ask('GET', `/v1/snapshot/${id}`),
  snapshot_tree: (id, limit, after) => ask('GET', `/v1/snapshot/${id}/tree?${page_text(limit, after)}`),
  /// `name`: may be empty.
  take_snapshot: (id, name) => ask('POST', `/v1/sandbox/${id}/snapshot`, { body: JSON.stringify(name ? { name } : {}), patience_ms: disk_patience_ms }),
  fork: (id, count) => ask('POST', `/v1/sandbox/${id}/fork`, { body: JSON.stringify({ count }), patience_ms: disk_patience_ms }),
  create_from: async (snapshot) => (await ask('POST', '/v1/sandbox', { headers: { 'Insula-Snapshot': snapshot }, patience_ms: 60_000 })).id,
  roll_back: (id, snapshot) => ask('POST', `/v1/sandbox/${id}/rollback`, { body: JSON.stringify({ snapshot }), patience_ms: disk_patience_ms }),
  remove_snapshot: (id) => ask('DELETE', `/v1/snapshot/${id}`, { patience_ms: 40_000 }),
  network: (id) => ask('GET', `/v1/sandbox/${id}/network`),
  set_network: (id, policy) => ask('PUT', `/v1/sandbox/${id}/network`, { body: JSON.stringify(policy) }),
  terminal_address: (id, { cols, rows }) =>
    `${location.origin.replace(/^http/, 'ws')}/v1/sandbox/${id}/pty?cols=${cols}&rows=${rows}`,
};
