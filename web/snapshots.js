// The snapshots of a sandbox: taking one, forks, going back, and the tree that they are in.

const snapshots_page = 100; // Of the list.
const tree_pages = 2; // Of a tree, with as many as a page may have. What follows is not read.
const tree_page = 256;

/// An answer of another kind is a failure like any other.
function expect_answer(is_one) {
  if (!is_one) throw new NodeError('The node\u2019s answer is none that this page understands.', 0);
}

/// Of a page of them.
function snapshots_in(said) {
  const is_one = (each) => is_sandbox_id(each?.id) && typeof each.state === 'string' && Number.isFinite(each.created_ms);
  expect_answer(Array.isArray(said?.snapshots) && said.snapshots.every(is_one));
  return said.snapshots;
}

/// What stands in a list of descriptions.
function snapshot_figures({ id, name, sandbox, state, kind, bytes, created_ms, expires_ms, parent, image, image_changed, labels, sandboxes }) {
  const told = {
    Id: id,
    Name: name,
    State: state,
    Kind: kind,
    Taken: moment_text(created_ms),
    Size: bytes ? bytes_text(bytes) : undefined,
    Image: image_changed ? `${image}, which was changed since` : image,
    'Disk of': sandbox,
    'Comes from': parent,
    Expires: expires_ms === undefined ? undefined : moment_text(expires_ms),
    'Sandboxes that began with it': sandboxes === undefined ? undefined : String(sandboxes),
  };
  return [...Object.entries(told).filter(([, text]) => text), ...Object.entries(labels ?? {}).map(([label, text]) => ['Label', `${label}: ${text}`])];
}

class SnapshotRow {
  constructor(id, { select, roll_back, remove }) {
    this.element = document.createElement('tr');
    this.element.setAttribute('role', 'row');
    this.element.dataset.snapshot = id;
    this.cells = {};
    for (const label of ['Name', 'State', 'Taken', 'Size', 'Kind', 'Actions']) {
      const cell = document.createElement('td');
      cell.setAttribute('role', 'cell');
      cell.dataset.label = label;
      this.cells[label] = cell;
      this.element.append(cell);
    }
    this.cells.Name.className = 'id';
    for (const label of ['Taken', 'Size']) this.cells[label].className = 'number';
    this.cells.Actions.className = 'actions';
    this.name = this.button(select, 'link');
    this.below = document.createElement('span');
    this.below.className = 'below';
    this.cells.Name.append(this.name, this.below);
    [this.roll_back, this.remove] = [this.button(roll_back), this.button(remove)];
    this.cells.Actions.append(this.roll_back, this.remove);
    this.roll_back.textContent = 'Roll back';
    this.remove.textContent = 'Delete';
  }

  button(act, kind = '') {
    const made = document.createElement('button');
    made.type = 'button';
    made.className = kind;
    made.addEventListener('click', () => act(made));
    return made;
  }

  show(snapshot, { is_base, is_selected, goes_back }) {
    const { id, name, state, kind, bytes, created_ms } = snapshot;
    const label = label_of(snapshot);
    this.element.dataset.state = state;
    set_text(this.name, label);
    this.name.setAttribute('aria-pressed', is_selected);
    set_text(this.below, [name ? id : '', is_base ? 'the sandbox begins here' : ''].filter(Boolean).join(' \u00b7 '));
    for (const [cell, text] of Object.entries({ State: state, Taken: moment_text(created_ms), Size: bytes ? bytes_text(bytes) : unknown, Kind: kind }))
      set_text(this.cells[cell], text);
    this.roll_back.setAttribute('aria-label', `Roll back to ${label}`);
    this.remove.setAttribute('aria-label', `Delete ${label}`);
    this.roll_back.hidden = !goes_back;
  }
}

class SnapshotsView {
  /// `parts`: where its parts stand. `act`: does what a button is for, and says what went wrong. `confirm`: asks first. `failed`: is told what
  /// went wrong with a look; `went_well`: that nothing did.
  constructor(parts, id, { act, confirm, failed, went_well }) {
    Object.assign(this, { parts, id, confirm, failed, went_well });
    this.perform = act;
    this.pages = 1; // So many of the list are shown.
    this.newest = 0; // An answer that was overtaken is not shown.
    this.rows = new Map();
    this.tree = new SnapshotTree(parts.picture, (chosen) => this.select(chosen));
    this.listeners = [
      [parts.taking, 'submit', (event) => this.take(event)],
      [parts.forking, 'submit', (event) => this.fork(event)],
      [parts.more, 'click', () => this.show_more()],
      [parts.begin, 'click', () => this.begin_with(parts.begin, this.chosen)],
      [parts.roll_back, 'click', () => this.roll_back(parts.roll_back, this.chosen)],
      [parts.remove, 'click', () => this.remove(parts.remove, this.chosen)],
      [document, 'visibilitychange', () => this.look()],
    ];
    for (const [where, what, how] of this.listeners) where.addEventListener(what, how);
    parts.taking.reset();
    parts.forking.reset();
    this.tell('');
    for (const each of [parts.none, parts.refused, parts.making, parts.list, parts.tree, parts.details]) each.hidden = true;
    parts.rows.replaceChildren();
    this.look();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    for (const [where, what, how] of this.listeners) where.removeEventListener(what, how);
    this.tree.close();
  }

  /// In words, in place of buttons that cannot work.
  keeps_none(why) {
    const { parts } = this;
    this.is_refused = true;
    clearTimeout(this.timer);
    set_text(parts.refused, `This node keeps no snapshots: ${why.replace(/\.$/, '')}.`);
    parts.refused.hidden = false;
    for (const each of [parts.making, parts.list, parts.tree, parts.details]) each.hidden = true;
  }

  // ---- What there is

  /// Looks now and from then on, as long as somebody can see it.
  async look() {
    clearTimeout(this.timer);
    if (document.hidden || this.is_refused || this.closed) return;
    const mine = ++this.newest;
    const overtaken = () => this.closed || this.is_refused || mine !== this.newest;
    try {
      const said = await this.ask();
      if (overtaken()) return;
      this.went_well();
      this.show(said);
    } catch (why) {
      if (overtaken()) return;
      if (why.status === 403) return this.keeps_none(why.message);
      this.failed(why);
      if (why.status === 401) return;
    }
    this.timer = setTimeout(() => this.look(), refresh_ms);
  }

  async ask() {
    const unless_gone = (asked) => asked.catch((why) => (why.status === 404 ? undefined : Promise.reject(why)));
    const [is, listed] = await Promise.all([unless_gone(node.describe(this.id)), this.ask_pages((after) => node.snapshots(this.id, snapshots_page, after), this.pages)]);
    const base = is?.snapshot;
    const of = this.selected ?? this.drawn_of ?? base ?? listed.snapshots[0]?.id;
    const tree = of && (await unless_gone(this.ask_pages((after) => node.snapshot_tree(of, tree_page, after), tree_pages)));
    const selected = this.selected && (await unless_gone(node.snapshot(this.selected)));
    if (selected) snapshots_in({ snapshots: [selected] });
    if (!tree) this.drawn_of = undefined; // It was forgotten.
    return { is, base, listed, tree, asked_for: this.selected, selected };
  }

  /// So many pages, as one.
  async ask_pages(ask_for, pages) {
    const all = [];
    let cursor;
    for (let page = 0; page === 0 || (cursor && page < pages); ++page) {
      const said = await ask_for(cursor);
      all.push(...snapshots_in(said));
      cursor = said.cursor;
    }
    return { snapshots: all, more: Boolean(cursor) };
  }

  show(said) {
    const { parts } = this;
    const { is, base, listed, tree, asked_for, selected } = said;
    this.said = said;
    if (asked_for && asked_for === this.selected && !selected) this.selected = undefined; // It was forgotten.
    if (selected?.id === this.selected) this.chosen = selected;
    else this.chosen = [...(tree?.snapshots ?? []), ...listed.snapshots].find(({ id }) => id === this.selected);
    parts.making.hidden = !is;
    this.show_list(listed.snapshots, base);
    const nothing = is ? 'It has none yet.' : 'There is no such sandbox.';
    set_text(parts.none, is || listed.snapshots.length === 0 ? nothing : `${nothing} Its snapshots are still here.`);
    parts.none.hidden = is && listed.snapshots.length > 0;
    parts.list.hidden = false;
    parts.more.hidden = !listed.more;
    this.show_tree(tree, base);
    this.show_details();
  }

  show_list(listed, base) {
    const { parts } = this;
    const rows = new Map();
    for (const each of listed) {
      const { id } = each;
      const acts = {
        select: () => this.select(id, true),
        roll_back: (button) => this.roll_back(button, this.listed(id)),
        remove: (button) => this.remove(button, this.listed(id)),
      };
      const row = this.rows.get(id) ?? new SnapshotRow(id, acts);
      row.show(each, { is_base: id === base, is_selected: id === this.selected, goes_back: this.goes_back_to(each) });
      rows.set(id, row);
    }
    this.rows = rows;
    for (const [at, { element }] of [...rows.values()].entries())
      if (parts.rows.children[at] !== element) parts.rows.insertBefore(element, parts.rows.children[at] ?? null);
    while (parts.rows.children.length > rows.size) parts.rows.lastElementChild.remove();
    parts.table.hidden = rows.size === 0;
  }

  listed(id) {
    return this.said.listed.snapshots.find((each) => each.id === id);
  }

  show_tree(tree, base) {
    const { parts } = this;
    parts.tree.hidden = !tree?.snapshots.length;
    if (parts.tree.hidden) return;
    const all = tree.snapshots;
    this.drawn_of = all[0].root ?? all[0].id;
    const count = this.tree.show(all, { base, selected: this.selected });
    const left_out = all.length - count;
    const words = [
      left_out > 0 ? `${count} of ${all.length} are drawn: what leads to the one that is selected and to the one that the sandbox begins with, and the newest. ${left_out} are left out.` : '',
      tree.more ? `Of this tree, the ${all.length} oldest were read. Those that came later are left out.` : '',
    ].filter(Boolean);
    set_text(parts.left_out, words.join(' '));
    parts.left_out.hidden = words.length === 0;
  }

  // ---- The one that is selected

  /// `shows_it`: its description is brought into view.
  select(id, shows_it = false) {
    this.selected = id;
    const { tree, listed, base } = this.said;
    this.chosen = [...(tree?.snapshots ?? []), ...listed.snapshots].find((each) => each.id === id);
    this.show_list(listed.snapshots, base);
    if (tree) this.show_tree(tree, base);
    this.show_details();
    if (shows_it) this.parts.details.scrollIntoView({ block: 'nearest' });
    this.look(); // It may be of another tree, and how many began with it is told of one that is asked for.
  }

  is_base(snapshot) {
    return this.said.base === snapshot.id;
  }

  goes_back_to(snapshot) {
    return Boolean(this.said.is) && snapshot.state === 'created' && (snapshot.sandbox === this.id || this.is_base(snapshot));
  }

  show_details() {
    const { parts, chosen } = this;
    parts.details.hidden = !chosen;
    if (!chosen) return;
    const { state, sandbox } = chosen;
    set_text(parts.chosen_title, label_of(chosen));
    show_figures(parts.figures, snapshot_figures(chosen));
    parts.begin.hidden = state !== 'created';
    parts.roll_back.hidden = !this.goes_back_to(chosen);
    parts.remove.hidden = state === 'deleted';
    const why = {
      deleted: 'It was deleted: no sandbox can begin with it.',
      failed: 'What it had is lost: no sandbox can begin with it.',
      created: sandbox === this.id || this.is_base(chosen) || !this.said.is ? '' : `It is of the disk of ${sandbox}: this sandbox cannot go back to it.`,
    };
    set_text(parts.why, this.is_base(chosen) && state === 'created' ? 'The sandbox begins with it.' : (why[state] ?? ''));
  }

  // ---- What its buttons do

  tell(words, made = []) {
    set_text(this.parts.state, words);
    this.parts.made.replaceChildren(
      ...made.map((id) => {
        const link = document.createElement('a');
        Object.assign(link, { href: `#terminal/${id}`, textContent: id });
        link.setAttribute('aria-label', `Terminal in ${id}`);
        const line = document.createElement('li');
        line.append(link);
        return line;
      }),
    );
  }

  /// One thing that a button is for, and then a look. What the node does not do at all is told for good. `id`: of the snapshot that it is about.
  async act(button, words, what, id) {
    if (this.closed) return; // A dialog of it was still open.
    await this.perform(button, async () => {
      this.tell(words);
      try {
        await what();
      } catch (why) {
        if (!this.closed) this.tell('');
        if (this.closed || why.status !== 403 || button !== this.parts.take) throw why;
        this.keeps_none(why.message);
      } finally {
        await this.look();
      }
    });
    this.focus_again(button, id);
  }

  take(event) {
    event.preventDefault();
    const { taking, take } = this.parts;
    const name = taking.elements.name.value.trim();
    this.act(take, 'Taking it\u2026', async () => {
      const taken = await node.take_snapshot(this.id, name);
      if (this.closed) return;
      snapshots_in({ snapshots: [taken] });
      taking.reset();
      this.tell(`${label_of(taken)} was taken.`);
    });
  }

  fork(event) {
    event.preventDefault();
    const { forking, fork } = this.parts;
    const count = forking.elements.count.valueAsNumber;
    this.act(fork, 'Forking\u2026', async () => {
      const { sandboxes } = await node.fork(this.id, count);
      expect_answer(Array.isArray(sandboxes) && sandboxes.every((each) => is_sandbox_id(each?.id)));
      const ids = sandboxes.map(({ id }) => id);
      if (!this.closed) this.tell(ids.length === 1 ? '1 sandbox was made:' : `${ids.length} sandboxes were made:`, ids);
    });
  }

  begin_with(button, snapshot) {
    this.act(button, 'Making a sandbox\u2026', async () => {
      const id = await node.create_from(snapshot.id);
      expect_answer(is_sandbox_id(id));
      if (!this.closed) this.tell('1 sandbox is about to start:', [id]);
      const { running } = await node.start(id);
      if (!running) throw new NodeError(`The sandbox ${id} did not start.`, 0);
      if (!this.closed) this.tell('1 sandbox was made:', [id]);
    });
  }

  roll_back(button, snapshot) {
    const label = label_of(snapshot);
    const words = {
      title: `Roll back to ${label}?`,
      text: ['Everything that runs in ', this.id, ' ends, and what it has written since this snapshot is gone.'],
      no: 'Leave it as it is',
      yes: 'Roll back',
    };
    this.confirm(words, () =>
      this.act(button, 'Rolling back\u2026', async () => {
        await node.roll_back(this.id, snapshot.id);
        if (!this.closed) this.tell(`The sandbox was rolled back to ${label}.`);
      }, snapshot.id));
  }

  remove(button, snapshot) {
    const label = label_of(snapshot);
    const words = {
      title: `Delete ${label}?`,
      text: ['No sandbox can begin with the snapshot ', snapshot.id, ' any more. Those that did go on.'],
      no: 'Keep it',
      yes: 'Delete',
    };
    this.confirm(words, () =>
      this.act(button, 'Deleting\u2026', async () => {
        await node.remove_snapshot(snapshot.id);
        if (!this.closed) this.tell(`${label} was deleted.`);
      }, snapshot.id));
  }

  /// A button loses the focus while it works, and may go with what it was for.
  focus_again(button, id) {
    if (this.closed || this.is_refused || document.activeElement !== document.body) return;
    if (button.isConnected && button.getClientRects().length > 0) button.focus();
    else if (!this.tree.focus(id)) this.parts.take.focus();
  }

  show_more() {
    ++this.pages;
    this.look();
  }
}
