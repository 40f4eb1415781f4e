// The page itself: which of its views is shown, and what its buttons do.

const part = (id) => document.getElementById(id);
const refresh_ms = 2_000;
const second_ms = 1_000;

const list = new SandboxList(part('sandboxes'), part('rows'), part('empty'), part('count'));
const nodes = new NodeTable(part('nodes'), part('node-rows'));
const images = new ImageTable(part('images'), part('image-rows'), part('image'));
let terminal;
let network;
let runs;
let snapshots;

function show(view) {
  for (const each of ['sign-in-view', 'list-view', 'terminal-view', 'network-view', 'runs-view', 'snapshots-view']) part(each).hidden = each !== view;
  part('bar').hidden = view !== 'list-view';
}

const shown = (view) => !part(view).hidden;

/// `until_good`: it goes by itself once the node answers again.
function complain(text, until_good = false) {
  part('alert-text').textContent = text;
  part('alert').hidden = !text;
  part('alert').dataset.until = until_good ? 'good' : '';
}

/// The node has answered.
function went_well() {
  if (part('alert').dataset.until === 'good') complain('');
}

/// Does what a button is for; what goes wrong is said. One thing at a time for each button.
async function act(button, what) {
  button.disabled = true;
  try {
    await what();
  } catch (why) {
    if (why.status === 401) ask_for_key();
    else complain(why.message);
  } finally {
    button.disabled = false;
  }
}

// ---- Signing in

function ask_for_key() {
  close_terminal();
  close_details();
  list.clear();
  pages = 1;
  part('more').hidden = true;
  nodes.show();
  complain('');
  show('sign-in-view');
  part('key').focus();
}

part('sign-in').addEventListener('submit', async (event) => {
  event.preventDefault();
  const [field, button] = [part('key'), event.submitter ?? part('sign-in').querySelector('button')];
  button.disabled = true;
  part('sign-in-error').textContent = '';
  try {
    await node.sign_in(field.value);
    field.value = '';
    await enter();
  } catch (why) {
    part('sign-in-error').textContent = why.message;
    field.select();
    field.focus();
  } finally {
    button.disabled = false;
  }
});

part('sign-out').addEventListener('click', ({ target }) =>
  act(target, async () => {
    await node.sign_out();
    ask_for_key();
  }));

// ---- The list

let timer;
let pages = 1; // So many of each node are shown.
let newest = 0; // An answer that was overtaken is not shown.

/// Looks once. What the node says about a sandbox is told to those who ask for it: of the one with `id`, however far down it is.
async function look(id) {
  const mine = ++newest;
  const [said, images_here] = await Promise.all([look_everywhere({ pages, id }), node.images()]);
  part('sign-out').hidden = !said.key;
  went_well();
  if (mine !== newest) return said;
  list.show(said, {
    open: (id) => go_to(id),
    runs: (id) => (location.hash = `#runs/${id}`),
    keep: (id) => (location.hash = `#snapshots/${id}`),
    reach: (id) => (location.hash = `#network/${id}`),
    remove,
  });
  part('more').hidden = !said.more;
  nodes.show(said.cluster);
  images.show(images_here);
  part('images-of').textContent = said.cluster ? `of ${said.node}` : '';
  part('whole').textContent = said.cluster ? 'in this cluster' : 'on this node';
  part('line').textContent = first_line(said.key);
  return said;
}

/// What makes a sandbox from a terminal: all that it needs stands in it, but for the key.
function first_line(key) {
  const shows_key = key ? ' -H "Authorization: Bearer $SANDBOX_API_KEY"' : '';
  return `curl -sN${shows_key} ${location.origin}/v1/sandbox/hello/exec -d '{"argv": ["echo", "hello"]}'`;
}

/// Looks now and from then on, as long as somebody can see it.
async function keep_looking() {
  clearTimeout(timer);
  if (document.hidden || !shown('list-view')) return;
  try {
    await look();
  } catch (why) {
    if (why.status === 401) return ask_for_key();
    if (shown('list-view')) complain(`${why.message} Trying again\u2026`, true);
  }
  clearTimeout(timer);
  timer = setTimeout(keep_looking, refresh_ms);
}

document.addEventListener('visibilitychange', keep_looking);
setInterval(() => shown('list-view') && list.tick(), second_ms);

part('more').addEventListener('click', () => {
  ++pages;
  keep_looking();
});

part('create').addEventListener('click', ({ currentTarget }) =>
  act(currentTarget, async () => {
    complain('');
    const id = await node.create(part('image').value);
    const started = node.start(id); // The node knows of it by then, and the list shows how it starts.
    keep_looking();
    if (!(await started).running) throw new NodeError('The sandbox did not start.', 0);
    await look();
    list.focus(id);
  }));

part('pull').addEventListener('submit', (event) => {
  event.preventDefault();
  const field = part('reference');
  part('pull-state').textContent = 'Asking\u2026';
  act(part('pull-button'), async () => {
    complain('');
    const asked = node.pull(field.value.trim());
    keep_looking(); // The list shows how far it is.
    try {
      const { name } = await asked;
      part('pull-state').textContent = name ? `${name} is here.` : 'On its way.';
      field.value = '';
    } catch (why) {
      part('pull-state').textContent = '';
      throw why;
    }
    await look();
  });
});

/// Asks before what cannot be undone. `text`: what is about to happen, around the id that it happens to.
function confirm_first({ title, text: [before, id, after], no, yes }, then) {
  const dialog = part('confirm');
  const texts = { title, before, id, after, no, yes };
  for (const [name, text] of Object.entries(texts)) part(`confirm-${name}`).textContent = text;
  dialog.returnValue = 'no';
  dialog.onclose = () => dialog.returnValue === 'yes' && then();
  dialog.showModal();
}

function remove(id) {
  const words = { title: 'Delete this sandbox?', text: ['Everything that runs in ', id, ' ends, and its files are gone.'], no: 'Keep it', yes: 'Delete' };
  confirm_first(words, () => {
    part('create').focus(); // Its own button goes with it.
    act(part('create'), async () => {
      await node.remove(id);
      await look();
    }).then(() => part('create').focus());
  });
}

part('alert-close').addEventListener('click', () => complain(''));

// ---- The terminal, whose sandbox stands in the address: a page that is loaded again is where it was

const terminal_in = (hash) => /^#terminal\/(.+)$/.exec(hash)?.[1];

function go_to(id) {
  chosen = id;
  location.hash = `#terminal/${id}`;
}
let chosen; // By a click: then it may be started. An address alone starts nothing.

function tell_terminal(words, again) {
  part('terminal-state').textContent = words;
  part('terminal-state').dataset.connected = words === 'Connected';
  part('again').hidden = !again;
  part('again').textContent = again ?? '';
}

async function still_lives(id) {
  try {
    const { sandboxes } = await look(id);
    return sandboxes.some((each) => each.id === id && !['asleep', 'stopping', 'deleting'].includes(each.state));
  } catch (why) {
    if (why.status === 401) ask_for_key();
    throw why;
  }
}

function open_terminal(id) {
  close_terminal();
  complain('');
  show('terminal-view');
  document.title = `${id} \u2013 Insula`;
  part('terminal-title').textContent = id;
  tell_terminal('Connecting\u2026'); // Not what the last one was.
  keys.hold(false);
  terminal = new TerminalView(part('screen'), id, {
    tell: tell_terminal,
    may_come_back: () => still_lives(id),
    leave: () => part('leave').focus(),
    typed: (text) => keys.typed(text),
    screen_reader: part('screen-reader').checked,
  });
  if (chosen === id) terminal.connect();
  else terminal.connect_if_alive();
  terminal.xterm.focus();
  chosen = undefined;
}

function close_terminal() {
  terminal?.close();
  terminal = undefined;
  document.title = 'Insula';
}

// ---- What it may reach

const network_in = (hash) => /^#network\/(.+)$/.exec(hash)?.[1];

const tell_failure = (why) => (why.status === 401 ? ask_for_key() : complain(`${why.message} Trying again\u2026`, true));

function open_network(id) {
  close_terminal();
  complain('');
  show('network-view');
  document.title = `Network of ${id} \u2013 Insula`;
  part('network-title').textContent = id;
  const named = { rest: 'policy-rest', rules: 'policy-rules', dry_run: 'policy-dry-run', error: 'policy-error', state: 'policy-state', save: 'policy-save' };
  const elements_of = Object.fromEntries(Object.entries(named).map(([name, where]) => [name, part(where)]));
  network = new NetworkView(
    {
      form: { element: part('policy'), elements_of },
      figures: part('network-figures'),
      requests: { rows: part('request-rule-rows'), section: part('request-rules-section') },
      refusals: { rows: part('refusal-rows'), table: part('refusals'), none: part('no-refusals') },
      failures: { rows: part('failure-rows'), table: part('failures'), none: part('no-failures') },
    },
    id,
    { failed: tell_failure },
  );
  part('policy-rules').focus();
}

// ---- Its runs

const runs_in = (hash) => /^#runs\/(.+)$/.exec(hash)?.[1];

function open_runs(id) {
  close_terminal();
  complain('');
  show('runs-view');
  document.title = `Runs of ${id} \u2013 Insula`;
  part('runs-title').textContent = id;
  const named = { words: 'runs-words', table: 'runs', rows: 'run-rows', none: 'no-runs', more: 'more-runs', totals: 'run-totals', totals_section: 'run-totals-section' };
  const parts = Object.fromEntries(Object.entries(named).map(([name, where]) => [name, part(where)]));
  runs = new RunsView(parts, id, { failed: tell_failure, went_well });
  part('runs-leave').focus();
}

// ---- Its snapshots

const snapshots_in_address = (hash) => /^#snapshots\/(.+)$/.exec(hash)?.[1];

function open_snapshots(id) {
  close_terminal();
  complain('');
  show('snapshots-view');
  document.title = `Snapshots of ${id} \u2013 Insula`;
  part('snapshots-title').textContent = id;
  const named = {
    refused: 'snapshots-refused', making: 'snapshots-making', taking: 'taking', take: 'take', forking: 'forking', fork: 'fork',
    state: 'snapshots-state', made: 'snapshots-made', list: 'snapshots-list', none: 'no-snapshots', table: 'snapshots', rows: 'snapshot-rows',
    more: 'more-snapshots', tree: 'tree-section', picture: 'tree', left_out: 'tree-left-out', details: 'snapshot', chosen_title: 'snapshot-title',
    figures: 'snapshot-figures', why: 'snapshot-why', begin: 'snapshot-begin', roll_back: 'snapshot-roll-back', remove: 'snapshot-remove',
  };
  const parts = Object.fromEntries(Object.entries(named).map(([name, where]) => [name, part(where)]));
  const act_anew = (button, what) => {
    complain('');
    return act(button, what);
  };
  snapshots = new SnapshotsView(parts, id, { act: act_anew, confirm: confirm_first, failed: tell_failure, went_well });
  part('snapshots-leave').focus();
}

/// What a sandbox may reach, its runs, and its snapshots.
function close_details() {
  network?.close();
  runs?.close();
  snapshots?.close();
  network = runs = snapshots = undefined;
}

part('snapshots-leave').addEventListener('click', () => (location.hash = ''));
part('runs-leave').addEventListener('click', () => (location.hash = ''));
part('network-leave').addEventListener('click', () => (location.hash = ''));
part('leave').addEventListener('click', () => (location.hash = ''));
part('again').addEventListener('click', () => terminal?.again());

const keys = new KeyRow(part('keys'), (text, arrow) => terminal?.press(text, arrow, keys.held));

// A browser may be set to keep nothing.
try {
  part('screen-reader').checked = localStorage.getItem('screen-reader') === 'on';
} catch {}
part('screen-reader').addEventListener('change', ({ target }) => {
  if (terminal) terminal.xterm.options.screenReaderMode = target.checked;
  try {
    localStorage.setItem('screen-reader', target.checked ? 'on' : 'off');
  } catch {}
});

/// Shows what the address says.
function follow_address() {
  const id = terminal_in(location.hash);
  const reached = network_in(location.hash);
  const of_runs = runs_in(location.hash);
  const of_snapshots = snapshots_in_address(location.hash);
  const left = part(network ? 'network-title' : runs ? 'runs-title' : snapshots ? 'snapshots-title' : 'terminal-title').textContent;
  close_details();
  if (id && is_sandbox_id(id)) return open_terminal(id);
  if (reached && is_sandbox_id(reached)) return open_network(reached);
  if (of_runs && is_sandbox_id(of_runs)) return open_runs(of_runs);
  if (of_snapshots && is_sandbox_id(of_snapshots)) return open_snapshots(of_snapshots);
  close_terminal();
  show('list-view');
  keep_looking().then(() => list.focus(left));
  part('terminal-title').textContent = '';
}
addEventListener('hashchange', () => shown('sign-in-view') || follow_address());

// Another page of this node's that wants the key has this one in its place. It is asked for again once the key has been shown; the
// mark tells that this has been tried.
const wanted = location.pathname === '/' ? undefined : location.pathname;
const mark = '?signed-in';
const not_kept = () => new NodeError('This browser did not keep the sign-in. Are cookies allowed?', 401);

/// The first look decides whether a key is asked for.
async function enter() {
  try {
    await look();
    if (wanted && location.search !== mark) return location.replace(wanted + mark + location.hash);
    if (wanted) throw not_kept();
  } catch (why) {
    if (why.status === 401) {
      if (shown('sign-in-view')) throw not_kept();
      return ask_for_key();
    }
    show('list-view');
    complain(`${why.message} Trying again\u2026`, true);
  }
  follow_address();
}
enter();
