// The images of this node: what a new sandbox can start from, what is on its way, and how to have one fetched.

class ImageTable {
  /// `choice`: the list to choose from for a new sandbox.
  constructor(section, body, choice) {
    Object.assign(this, { section, body, choice });
  }

  show({ images, pulling }) {
    this.section.hidden = false;
    this.body.replaceChildren(...pulling.map((each) => this.row_on_its_way(each)), ...images.map((each) => this.row(each)));
    const chosen = this.choice.value;
    const sorted = [...images].sort((a, b) => Number(b.default) - Number(a.default));
    this.choice.replaceChildren(
      ...sorted.map(({ name, default: is_default }) => new Option(is_default ? `${name} (default)` : name, is_default ? '' : name)),
    );
    if (sorted.some(({ name }) => name === chosen)) this.choice.value = chosen;
    this.choice.parentElement.hidden = images.length < 2; // Nothing to choose.
  }

  row({ name, base, size_bytes, used_ms, reference, programs }) {
    const runs = Object.entries(programs).map(([program, version]) => `${program} ${version}`.trim());
    return this.cells(name, {
      Name: name,
      Size: size_bytes > 0 ? bytes_text(size_bytes) : unknown,
      'Last used': used_ms ? `${age_text(Date.now() - used_ms)} ago` : unknown,
      From: [reference, base, runs.join(', ')].filter(Boolean).join(' \u00b7 ') || unknown,
    });
  }

  row_on_its_way({ reference, bytes, total_bytes }) {
    const row = this.cells(reference, { Name: reference, Size: total_bytes > 0 ? bytes_text(total_bytes) : unknown, 'Last used': unknown, From: '' });
    const bar = document.createElement('progress');
    bar.setAttribute('aria-label', `Fetching ${reference}`);
    if (total_bytes > 0) Object.assign(bar, { max: total_bytes, value: bytes });
    row.lastChild.append(bar);
    return row;
  }

  cells(name, texts) {
    const row = document.createElement('tr');
    row.setAttribute('role', 'row');
    row.dataset.image = name;
    for (const [label, text] of Object.entries(texts)) {
      const cell = document.createElement('td');
      cell.setAttribute('role', 'cell');
      cell.dataset.label = label;
      if (['Size', 'Last used'].includes(label)) cell.className = 'number';
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  }
}
