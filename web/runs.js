// The runs of a sandbox that has them: when each was, and what it has used. With them, what the sandbox is called.

class RunRow {
  constructor(number) {
    this.element = document.createElement('tr');
    this.element.setAttribute('role', 'row');
    this.element.dataset.run = number;
    this.cells = {};
    for (const name of ['Run', 'State', 'Started', 'Duration', 'Time left', 'CPU', 'Received', 'Sent']) {
      const cell = document.createElement('td');
      cell.setAttribute('role', 'cell');
      cell.dataset.label = name;
      if (name !== 'State') cell.className = 'number';
      this.cells[name] = cell;
      this.element.append(cell);
    }
  }

  show({ number, state, started_ms, ended_ms, ends_ms, cpu_ms, bytes_in, bytes_out }, now_ms) {
    this.element.dataset.state = state;
    const texts = {
      Run: String(number),
      State: state,
      Started: started_ms === undefined ? unknown : new Date(started_ms).toLocaleString(undefined, { dateStyle: 'short', timeStyle: 'medium' }),
      Duration: started_ms === undefined ? unknown : time_text((ended_ms ?? now_ms) - started_ms),
      'Time left': ends_ms === undefined ? unknown : time_text(ends_ms - now_ms),
      CPU: short_time_text(cpu_ms),
      Received: bytes_text(bytes_in),
      Sent: bytes_text(bytes_out),
    };
    for (const [name, text] of Object.entries(texts)) set_text(this.cells[name], text);
  }
}

class RunsView {
  /// `parts`: where its parts stand. `failed`: is told what went wrong; `went_well`: that nothing did.
  constructor(parts, id, { failed, went_well }) {
    Object.assign(this, { parts, id, failed, went_well });
    this.pages = 1; // So many are shown.
    this.newest = 0; // An answer that was overtaken is not shown.
    this.rows = new Map();
    this.show({ runs: [] });
    parts.none.hidden = true; // It is not known yet.
    this.show_more = () => {
      ++this.pages;
      this.look();
    };
    this.look_again = () => this.look();
    parts.more.addEventListener('click', this.show_more);
    document.addEventListener('visibilitychange', this.look_again);
    this.clock = setInterval(() => this.tick(), second_ms);
    this.look();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    clearInterval(this.clock);
    this.parts.more.removeEventListener('click', this.show_more);
    document.removeEventListener('visibilitychange', this.look_again);
  }

  /// Looks now and from then on, as long as somebody can see it.
  async look() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    const mine = ++this.newest;
    const overtaken = () => this.closed || mine !== this.newest;
    try {
      const said = await this.ask();
      if (overtaken()) return;
      this.went_well();
      this.show(said);
    } catch (why) {
      if (overtaken()) return;
      if (why.status === 401) return this.failed(why);
      if (why.status === 404) this.show({ runs: [] }, why.message);
      else this.failed(why);
    }
    this.timer = setTimeout(() => this.look(), refresh_ms);
  }

  /// All pages that are shown, as one.
  async ask() {
    const said = await node.runs(this.id);
    said.came_ms = performance.now();
    for (let page = 1; said.next && page < this.pages; ++page) {
      const { runs, next } = await node.runs(this.id, said.next);
      said.runs.push(...runs);
      said.next = next;
    }
    return said;
  }

  /// `nothing`: what is said where there are no runs.
  show(said, nothing = 'It has had none.') {
    const { parts } = this;
    this.said = said;
    const { name, group, tags = {}, totals, runs, next } = said;
    const of_name = name === undefined ? [] : [['Name', name], ['Project', group]];
    show_figures(parts.words, [...of_name, ...Object.entries(tags).map(([tag, text]) => ['Tag', `${tag}: ${text}`])]);
    parts.words.hidden = of_name.length === 0;
    parts.totals_section.hidden = totals === undefined;
    show_figures(parts.totals, totals === undefined ? [] : [
      ['Runs', String(totals.runs)],
      ['Duration', time_text(totals.duration_ms)],
      ['CPU', short_time_text(totals.cpu_ms)],
      ['Received', bytes_text(totals.bytes_in)],
      ['Sent', bytes_text(totals.bytes_out)],
    ]);
    const all = runs.map(({ number }) => this.rows.get(number) ?? new RunRow(number));
    this.rows = new Map(all.map((row, at) => [runs[at].number, row]));
    for (const [at, { element }] of all.entries())
      if (parts.rows.children[at] !== element) parts.rows.insertBefore(element, parts.rows.children[at] ?? null);
    while (parts.rows.children.length > all.length) parts.rows.lastElementChild.remove();
    parts.table.hidden = runs.length === 0;
    set_text(parts.none, nothing);
    parts.none.hidden = runs.length !== 0;
    parts.more.hidden = !next;
    this.tick();
  }

  /// What changes from second to second.
  tick() {
    for (const run of this.said.runs) this.rows.get(run.number).show(run, node_time(this.said.now_ms, this.said.came_ms));
  }
}
