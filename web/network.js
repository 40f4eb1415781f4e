// What a sandbox may reach: its policy, which can be changed here, what it has had, what is done with its requests, and what
// was refused or has failed last.

const reasons = {
  refused: 'refused by the other end',
  reset: 'reset by the other end',
  timed_out: 'no answer in time',
  unreachable: 'no way there',
  unresolved: 'no address for this name',
};

const is_about_requests = ({ transform, forward, respond }) => Boolean(transform ?? forward ?? respond);

/// What a request has to have, in few words.
function match_text({ method, path, queryString = [], headers = [] } = {}) {
  const text = ({ exact, startsWith, regex }) => exact ?? (startsWith === undefined ? `/${regex}/` : `${startsWith}\u2026`);
  const pair = (what) => ({ key, value }) => `${what} ${key ? text(key) : 'of any name'}${value ? `: ${text(value)}` : ''}`;
  const all = [...queryString.map(pair('query')), ...headers.map(pair('header'))];
  if (path) all.unshift(`path ${text(path)}`);
  if (method) all.unshift(method.join(', '));
  return all.join(', ') || 'all';
}

/// Values of headers are known to nobody here.
function action_text({ transform, forward, respond }) {
  if (transform) return `transform: ${transform.headerNames.join(', ')}`;
  if (forward) return `forward: ${forward}`;
  return `respond: ${[respond.status, ...respond.headerNames].join(', ')}`;
}

class NetworkView {
  /// `form`, `figures`, `requests`, `refusals`, `failures`: where they stand. `failed`: is told what went wrong.
  constructor({ form, figures, requests, refusals, failures }, id, { failed }) {
    Object.assign(this, { form, figures, requests, refusals, failures, id, failed });
    const { error, state } = form.elements_of;
    error.textContent = state.textContent = '';
    this.changed = false;
    this.has_request_rules = this.was_warned = false;
    this.submit = (event) => {
      event.preventDefault();
      this.save();
    };
    this.note_change = () => {
      this.changed = true;
      form.elements_of.state.textContent = '';
    };
    form.element.addEventListener('submit', this.submit);
    form.element.addEventListener('input', this.note_change);
    this.look();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.form.element.removeEventListener('submit', this.submit);
    this.form.element.removeEventListener('input', this.note_change);
  }

  /// Looks now and from then on. What somebody is writing is left as it is.
  async look() {
    clearTimeout(this.timer);
    try {
      const said = await node.network(this.id);
      if (this.closed) return;
      if (!this.changed) this.show_policy(said.policy);
      this.show_figures(said);
      this.show_requests(said);
    } catch (why) {
      if (this.closed) return;
      this.failed(why);
      if (why.status === 401) return;
    }
    this.timer = setTimeout(() => this.look(), refresh_ms);
  }

  show_policy(policy) {
    const { rest, rules, dry_run } = this.form.elements_of;
    this.policy = policy;
    rest.value = policy.default;
    // Of several rules about the requests of a domain there is one line.
    rules.value = [...new Set(policy.rules.map(({ action, target }) => `${action} ${target}`))].join('\n');
    dry_run.checked = policy.dry_run;
  }

  show_figures({ running, figures }) {
    const words = running
      ? [
          ['Received', bytes_text(figures.bytes_in)],
          ['Sent', bytes_text(figures.bytes_out)],
          ['Connections', String(figures.connections)],
          ['Open now', String(figures.open_connections)],
          ['Refused', String(figures.refusals)],
          ['Failed', String(figures.failures)],
        ]
      : [['It does not run', '']];
    show_figures(this.figures, words);
    this.list(this.refusals, figures?.last_refusals, (each) => this.refusal_row(each));
    this.list(this.failures, figures?.last_failures, (each) => this.row_of(each, 'Reason', reasons[each.reason] ?? each.reason));
  }

  show_requests({ policy, figures }) {
    const rules = policy.rules.filter(is_about_requests);
    this.has_request_rules = rules.length !== 0;
    this.requests.section.hidden = !this.has_request_rules;
    const counted = [...(figures?.request_rules ?? [])];
    this.requests.rows.replaceChildren(...rules.map((rule) => {
      // Both have the rules of one domain in the same order, and not the domains.
      const at = counted.findIndex(({ target }) => target === rule.target);
      const [did] = at < 0 ? [] : counted.splice(at, 1);
      return this.row({
        Target: rule.target,
        'Which requests': match_text(rule.match),
        'What is done': action_text(rule),
        Requests: did ? String(did.requests) : unknown,
        Received: did ? bytes_text(did.bytes_in) : unknown,
        Sent: did ? bytes_text(did.bytes_out) : unknown,
        'Last status': did?.last_status ? String(did.last_status) : unknown,
      }, ['Requests', 'Received', 'Sent', 'Last status']);
    }));
  }

  list({ rows, table, none }, last = [], row_of) {
    table.hidden = last.length === 0;
    none.hidden = last.length !== 0;
    rows.replaceChildren(...last.map(row_of));
  }

  /// Of texts by the names of their columns, some of which have numbers.
  row(texts, numbers = []) {
    const row = document.createElement('tr');
    row.setAttribute('role', 'row');
    for (const [label, text] of Object.entries(texts)) {
      const cell = document.createElement('td');
      cell.setAttribute('role', 'cell');
      cell.dataset.label = label;
      if (numbers.includes(label)) cell.className = 'number';
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  }

  row_of({ at, protocol, name, address, port }, why, words) {
    return this.row({ Time: new Date(at).toLocaleTimeString(), 'Name or address': name || address, Port: `${protocol} ${port}`, [why]: words });
  }

  refusal_row(each) {
    const { name, rule, let_through } = each;
    const row = this.row_of(each, 'Rule', let_through ? `${rule} (let through)` : rule);
    const last = document.createElement('td');
    last.setAttribute('role', 'cell');
    last.className = 'actions';
    if (name) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = 'Allow';
      button.setAttribute('aria-label', `Allow ${name}`);
      button.addEventListener('click', () => this.allow(name));
      last.append(button);
    }
    row.append(last);
    return row;
  }

  /// Goes before all others, and is saved by hand.
  allow(name) {
    const { rules } = this.form.elements_of;
    const line = `allow ${name}`;
    const others = rules.value.split('\n').filter((each) => each.trim() && each.trim() !== line);
    rules.value = [line, ...others].join('\n');
    this.note_change();
    rules.focus();
  }

  async save() {
    const { rest, rules, dry_run, error, state, save } = this.form.elements_of;
    error.textContent = state.textContent = '';
    if (this.has_request_rules && !this.was_warned) {
      this.was_warned = true;
      error.textContent = 'The rules about requests cannot be written here, since their values are not known. Save again to remove them.';
      return;
    }
    save.disabled = true;
    try {
      const said = await node.set_network(this.id, {
        default: rest.value,
        rules: rules_in(rules.value),
        dry_run: dry_run.checked,
        match_host: this.policy?.match_host ?? true,
      });
      if (this.closed) return;
      this.changed = this.was_warned = false;
      this.show_policy(said.policy);
      state.textContent = said.running ? 'Saved. It holds now.' : 'Saved. It holds from its next start on.';
      this.look();
    } catch (why) {
      if (why.status === 401) this.failed(why);
      error.textContent = why.message;
    } finally {
      save.disabled = false;
    }
  }
}

/// A rule for each line; an empty one is none.
function rules_in(text) {
  return text
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line)
    .map((line) => {
      const [action, target, ...more] = line.split(/\s+/);
      if (!['allow', 'deny'].includes(action) || !target || more.length)
        throw new NodeError(`\u201c${line}\u201d is no rule: \u201callow\u201d or \u201cdeny\u201d, then a domain or a subnet.`, 400);
      return { action, target };
    });
}
