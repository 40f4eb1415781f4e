// A tree of snapshots as a picture: each snapshot is a point in a row of its own, below the one that it comes from. The longest branch goes on in
// the column of its parent, and the others stand to the right of it: so lines never cross, and there are few columns.

const tree_ceiling = 200; // Snapshots that are drawn.
const [row_height, column_width, point_radius] = [46, 20, 6];

const label_of = ({ name, id }) => name || id;
const moment_text = (ms) => new Date(ms).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'short' });
const cut_text = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}\u2026` : text);

/// At most `most` of all snapshots: those with the ids in `first` with what they come from, then the newest ones with what they come from.
function chosen_of(all, first, most = tree_ceiling) {
  const by_id = new Map(all.map((each) => [each.id, each]));
  const chosen = new Set();
  const newest_first = [...by_id.values()].sort((a, b) => b.created_ms - a.created_ms);
  for (const each of [...first.map((id) => by_id.get(id)), ...newest_first])
    for (let at = each; at && !chosen.has(at) && chosen.size < most; at = by_id.get(at.parent)) chosen.add(at);
  return [...chosen];
}

/// Where each of them stands, from the top. `cut`: its parent is not among them.
function places_of(snapshots) {
  const ids = new Set(snapshots.map(({ id }) => id));
  const children = new Map();
  for (const each of snapshots) if (ids.has(each.parent)) children.set(each.parent, [...(children.get(each.parent) ?? []), each]);
  const sizes = new Map();
  const size_of = ({ id }) => {
    if (sizes.has(id)) return sizes.get(id);
    sizes.set(id, 1); // A wrong answer may say that a snapshot comes from itself.
    const size = (children.get(id) ?? []).reduce((sum, each) => sum + size_of(each), 1);
    sizes.set(id, size);
    return size;
  };
  const places = new Map();
  const place = (snapshot, from, column) => {
    if (places.has(snapshot.id)) return;
    const here = { snapshot, from, column, row: places.size, level: from ? from.level + 1 : 1, cut: !from && Boolean(snapshot.parent) };
    places.set(snapshot.id, here);
    const next = (children.get(snapshot.id) ?? []).sort((a, b) => size_of(a) - size_of(b) || a.created_ms - b.created_ms);
    for (const [at, each] of next.entries()) place(each, here, at + 1 < next.length ? column + 1 : column);
  };
  const oldest_first = [...snapshots].sort((a, b) => a.created_ms - b.created_ms);
  for (const each of oldest_first) if (!ids.has(each.parent)) place(each, undefined, 0);
  for (const each of oldest_first) place(each, undefined, 0);
  return [...places.values()];
}

function drawn(name, attributes = {}) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

const middle_of = ({ row }) => row * row_height + row_height / 2;
const left_of = ({ column }) => column_width * (column + 1);

/// From a snapshot up to its parent; to the edge of its row, if that is not drawn.
function line_to(place) {
  const [x, y] = [left_of(place), middle_of(place)];
  const { from } = place;
  if (!from) return drawn('path', { class: 'cut', d: `M${x} ${y}V${y - row_height / 2 + 2}` });
  const [above, top] = [left_of(from), middle_of(from)];
  const bend = 10;
  return drawn('path', { d: x === above ? `M${x} ${top}V${y}` : `M${above} ${top}V${y - bend}Q${above} ${y} ${above + bend} ${y}H${x}` });
}

class TreeNode {
  constructor(id, select) {
    this.element = drawn('g', { role: 'treeitem', class: 'node', tabindex: '-1', 'data-id': id });
    this.whole_name = drawn('title');
    this.ground = drawn('rect', { class: 'ground', x: 2, y: 2, height: row_height - 4, rx: 6 });
    this.ring = drawn('circle', { class: 'ring', cy: row_height / 2, r: point_radius + 4 });
    this.point = drawn('circle', { class: 'point', cy: row_height / 2, r: point_radius });
    this.cross = drawn('path', { class: 'cross' });
    this.name = drawn('text', { class: 'name', y: row_height / 2 - 3 });
    this.words = drawn('text', { class: 'words-below', y: row_height / 2 + 13 });
    this.element.append(this.whole_name, this.ground, this.ring, this.point, this.cross, this.name, this.words);
    this.element.addEventListener('click', select);
  }

  show(place, { columns, is_base, is_selected, has_tab_stop }) {
    const { snapshot, row, level } = place;
    const { id, name, state, kind, bytes, created_ms } = snapshot;
    const words = [
      state === 'created' ? '' : state,
      is_base ? 'the sandbox begins here' : '',
      moment_text(created_ms),
      bytes ? bytes_text(bytes) : '',
      kind === 'automatic' ? kind : '',
    ].filter(Boolean);
    const x = left_of(place);
    const attributes = {
      transform: `translate(0 ${row * row_height})`,
      'aria-level': level,
      'aria-selected': is_selected,
      'aria-label': [label_of(snapshot), ...words].join(', '),
      'data-state': state,
      tabindex: has_tab_stop ? 0 : -1,
    };
    for (const [key, value] of Object.entries(attributes)) this.element.setAttribute(key, value);
    this.element.classList.toggle('base', is_base);
    this.ground.setAttribute('width', 'calc(100% - 4px)');
    for (const each of [this.ring, this.point]) each.setAttribute('cx', x);
    const arm = point_radius - 1;
    this.cross.setAttribute('d', `M${x - arm} ${row_height / 2 - arm}l${2 * arm} ${2 * arm}m0 ${-2 * arm}l${-2 * arm} ${2 * arm}`);
    for (const each of [this.name, this.words]) each.setAttribute('x', columns * column_width + 22);
    set_text(this.whole_name, name ? `${name} (${id})` : id);
    set_text(this.name, cut_text(label_of(snapshot), 60));
    set_text(this.words, words.join(' \u00b7 '));
  }
}

class SnapshotTree {
  /// `picture`: the element of the picture. `select`: is told the id of a snapshot that was chosen.
  constructor(picture, select) {
    Object.assign(this, { picture, select });
    this.lines = drawn('g', { class: 'lines', 'aria-hidden': 'true' });
    this.nodes = new Map();
    this.places = [];
    picture.replaceChildren(this.lines);
    this.press = (event) => this.on_key(event);
    picture.addEventListener('keydown', this.press);
  }

  close() {
    this.picture.removeEventListener('keydown', this.press);
    this.picture.replaceChildren();
  }

  /// Answers how many of all are drawn. What stays is changed in place, so that the focus does not move.
  show(all, { base, selected }) {
    this.places = places_of(chosen_of(all, [selected, base].filter(Boolean)));
    const focused = this.picture.contains(document.activeElement) ? document.activeElement : undefined;
    const columns = Math.max(0, ...this.places.map(({ column }) => column)) + 1;
    const there = (id) => this.places.some(({ snapshot }) => snapshot.id === id);
    const stop = [focused?.dataset.id, selected, base].find((id) => id && there(id)) ?? this.places[0]?.snapshot.id;
    const nodes = new Map();
    for (const place of this.places) {
      const { id } = place.snapshot;
      const node = this.nodes.get(id) ?? new TreeNode(id, () => this.choose(id));
      node.show(place, { columns, is_base: id === base, is_selected: id === selected, has_tab_stop: id === stop });
      nodes.set(id, node);
    }
    for (const [id, node] of this.nodes) if (!nodes.has(id)) node.element.remove();
    this.nodes = nodes;
    for (const [at, { element }] of [...nodes.values()].entries())
      if (this.picture.children[at + 1] !== element) this.picture.insertBefore(element, this.picture.children[at + 1] ?? null);
    this.lines.replaceChildren(...this.places.filter(({ from, cut }) => from || cut).map(line_to));
    this.picture.setAttribute('height', this.places.length * row_height);
    if (focused?.isConnected && focused !== document.activeElement) focused.focus(); // It was moved.
    return this.places.length;
  }

  choose(id) {
    this.focus(id);
    this.select(id);
  }

  /// Whether it is there.
  focus(id) {
    const node = this.nodes.get(id);
    if (!node) return false;
    for (const each of this.nodes.values()) each.element.setAttribute('tabindex', each === node ? 0 : -1);
    node.element.focus();
    return true;
  }

  on_key(event) {
    const { key, ctrlKey, altKey, metaKey } = event;
    const at = this.places.findIndex(({ snapshot }) => snapshot.id === event.target.dataset.id);
    if (at < 0 || ctrlKey || altKey || metaKey) return;
    const here = this.places[at];
    const last = this.places.length - 1;
    const ways = {
      ArrowUp: () => this.places[Math.max(at - 1, 0)],
      ArrowDown: () => this.places[Math.min(at + 1, last)],
      ArrowLeft: () => here.from,
      ArrowRight: () => this.places.find(({ from }) => from === here),
      Home: () => this.places[0],
      End: () => this.places[last],
    };
    if (key === 'Enter' || key === ' ') this.choose(here.snapshot.id);
    else if (ways[key]) this.focus(ways[key]()?.snapshot.id);
    else return;
    event.preventDefault();
  }
}
