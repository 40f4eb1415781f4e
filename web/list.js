// The rows of the list. One that stays is changed in place, so that the focus does not move.

class SandboxRow {
  constructor(id, { open, runs, keep, reach, remove }) {
    this.element = document.createElement('tr');
    this.element.setAttribute('role', 'row');
    this.element.dataset.id = id;
    this.cells = {};
    for (const name of ['Id', 'Node', 'State', 'Age', 'Memory', 'CPU', 'Processes', 'Actions']) {
      const cell = document.createElement('td');
      cell.setAttribute('role', 'cell');
      cell.dataset.label = name;
      this.cells[name] = cell;
      this.element.append(cell);
    }
    for (const name of ['Age', 'Memory', 'CPU', 'Processes']) this.cells[name].className = 'number';
    this.cells.Node.className = 'node';
    this.cells.Id.className = 'id';
    this.texts = { ...this.cells }; // Where each text stands.
    for (const [name, below] of [['Id', 'caption'], ['State', 'run']])
      for (const [part, kind] of [[name, ''], [below, 'below']]) {
        const line = document.createElement('span');
        line.className = kind;
        this.texts[part] = line;
        this.cells[name].append(line);
      }
    this.set('Id', id);
    this.texts.Id.title = id; // It may be cut.
    this.cells.Actions.className = 'actions';
    this.runs = this.button('Runs', `Runs of ${id}`, runs);
    this.cells.Actions.append(
      this.button('Terminal', `Terminal in ${id}`, open),
      this.runs,
      this.button('Snapshots', `Snapshots of ${id}`, keep),
      this.button('Network', `Network of ${id}`, reach),
      this.button('Delete', `Delete ${id}`, remove),
    );
  }

  button(text, name, act) {
    const made = document.createElement('button');
    made.type = 'button';
    made.textContent = text;
    made.setAttribute('aria-label', name);
    made.addEventListener('click', act);
    return made;
  }

  show(status) {
    this.set('Node', status.node ?? '');
    this.set('State', status.current ? status.state : `${status.state}, not answering`);
    this.element.dataset.state = status.state;
    this.element.classList.toggle('old', !status.current);
    this.set('Age', age_text(status.at_ms - status.created_ms));
    this.set('Memory', bytes_text(status.memory_bytes));
    if (!this.before || status.at_ms > this.before.at_ms) {
      this.set('CPU', cpu_text(this.before, status));
      this.before = status;
    }
    this.set('Processes', String(status.processes ?? unknown));
    this.status = status;
    this.set('caption', caption_text(status));
    this.texts.caption.title = this.texts.caption.textContent; // It may be cut.
    this.runs.hidden = !status.run;
    this.tick();
    for (const button of this.cells.Actions.children) button.disabled = status.state === 'deleting';
  }

  /// What changes from second to second.
  tick() {
    const { run, at_ms, came_ms } = this.status;
    this.set('run', run ? run_text(run, node_time(at_ms, came_ms)) : '');
  }

  set(name, text) {
    set_text(this.texts[name], text);
  }
}

/// What a sandbox is called; empty: nothing.
function caption_text({ name, group, tags }) {
  if (name === undefined) return '';
  return [`${group} / ${name}`, ...Object.entries(tags).map(([tag, text]) => `${tag}: ${text}`)].join(' \u00b7 ');
}

function run_text({ number, state, ends_ms }, now_ms) {
  const words = state === 'running' ? `run ${number}` : `run ${number} ${state}`;
  return ends_ms === undefined ? words : `${words}, ${time_text(ends_ms - now_ms)} left`;
}

class SandboxList {
  constructor(table, body, empty, count) {
    Object.assign(this, { table, body, empty, count });
    this.rows = new Map();
  }

  /// `acts`: what the buttons of a row do, given its id.
  show({ now_ms, sandboxes, cluster, total, more }, acts) {
    this.table.classList.toggle('clustered', Boolean(cluster));
    const newest_first = (a, b) => (b.created_ms ?? now_ms) - (a.created_ms ?? now_ms) || (a.id < b.id ? -1 : 1);
    const there = new Set(sandboxes.map((each) => each.id));
    for (const [id, row] of this.rows)
      if (!there.has(id)) {
        row.element.remove();
        this.rows.delete(id);
      }
    let place = this.body.firstChild;
    for (const status of [...sandboxes].sort(newest_first)) {
      let row = this.rows.get(status.id);
      if (!row) {
        const { id } = status;
        row = new SandboxRow(id, { open: () => acts.open(id), runs: () => acts.runs(id), keep: () => acts.keep(id), reach: () => acts.reach(id), remove: () => acts.remove(id) });
        this.rows.set(id, row);
      }
      row.show(status);
      if (row.element === place) place = place.nextSibling;
      else this.body.insertBefore(row.element, place);
    }
    this.table.hidden = sandboxes.length === 0;
    this.empty.hidden = sandboxes.length !== 0;
    this.count.textContent = more ? `${sandboxes.length} of ${total}` : sandboxes.length || '';
  }

  tick() {
    for (const row of this.rows.values()) row.tick();
  }

  focus(id) {
    this.rows.get(id)?.element.querySelector('button').focus();
  }

  clear() {
    this.rows.clear();
    this.body.replaceChildren();
    this.count.textContent = '';
    this.table.hidden = this.empty.hidden = true;
  }
}
