// Programs for the Vercel Sandbox service use this server instead, unchanged:
//
//   INSULA_URL=http://127.0.0.1:8787 node --import ./insula-vercel.mjs program.mjs
//
// INSULA_URL says where the server is. INSULA_PREVIEW_URL says where its previews are, if that is another place.
const server = new URL(process.env.INSULA_URL ?? 'http://127.0.0.1:8787');
const previews = new URL(process.env.INSULA_PREVIEW_URL ?? server);
const fetchAsBefore = globalThis.fetch;

/** Below `place`: the path and the query of `asked`, behind `prefix`. */
function below(place, asked, prefix = '') {
  const moved = new URL(place);
  moved.pathname = place.pathname.replace(/\/+$/, '') + prefix + asked.pathname;
  moved.search = asked.search;
  return moved;
}

/** Where a request goes instead, and which host it was for if a preview has to know that. Nothing: it stays as it is. */
function redirection(asked) {
  if (asked.protocol !== 'https:') return undefined;
  switch (asked.hostname) {
    case 'vercel.com':
    case 'api.vercel.com':
      return { url: below(server, asked) };
    case 'oidc.vercel.com':
      return { url: below(server, asked, '/oidc') };
  }
  if (asked.hostname.endsWith('.vercel.run')) return { url: below(previews, asked), host: asked.host };
  // The command line asks for this without the port.
  if (asked.hostname === server.hostname && asked.port === '' && asked.pathname === '/health') return { url: below(server, asked) };
  return undefined;
}

/** An invitation to a terminal, whose WebSocket is where INSULA_URL is: a proxy may stand in front of the server. */
async function terminalHere(answer) {
  if (!answer.ok) return answer;
  const said = await answer.json();
  const socket = below(server, new URL(said.url));
  socket.protocol = server.protocol === 'https:' ? 'wss:' : 'ws:';
  const { status, statusText } = answer;
  const headers = { 'content-type': 'application/json' };
  return new Response(JSON.stringify({ ...said, url: socket.href }), { status, statusText, headers });
}

const invitation = /\/v2\/sandboxes\/sessions\/[^/]+\/interactive$/;

globalThis.fetch = function fetch(input, init) {
  const asked = new URL(input instanceof Request ? input.url : input);
  const to = redirection(asked);
  if (!to) return fetchAsBefore(input, init);
  let options = init;
  if (to.host) {
    const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined));
    headers.set('x-forwarded-host', to.host);
    options = { ...init, headers };
  }
  const answer = input instanceof Request ? fetchAsBefore(new Request(to.url, input), options) : fetchAsBefore(to.url, options);
  return invitation.test(asked.pathname) ? answer.then(terminalHere) : answer;
};
