// Where there are several nodes: what each of them says of its sandboxes, and how the nodes themselves are.

const other_patience_ms = 3_000; // One that does not answer holds up the list of the others.

/// The first pages of one node's list as one, and those that follow up to the one that has `id`, if it is given.
async function first_pages(ask_for, { pages, id }) {
  const said = await ask_for();
  said.came_ms = performance.now();
  for (let page = 1; said.next && (page < pages || (id && !said.sandboxes.some((each) => each.id === id))); ++page) {
    const { sandboxes, next } = await ask_for(said.next);
    said.sandboxes.push(...sandboxes);
    said.next = next;
  }
  return said;
}

/// What every node says on so many first pages, as one list; `total` is how many there are in all. Each sandbox has the time at its node with the moment in which that came here, and in a cluster
/// the node's name. Of a node that does not answer, it has those that the others know of.
async function look_everywhere(wanted) {
  const said = await first_pages((after) => node.list(after), wanted);
  let [total, more] = [said.total ?? said.sandboxes.length, Boolean(said.next)];
  const seen_at = ({ now_ms, came_ms, sandboxes }, name) => sandboxes.map((each) => ({ ...each, at_ms: now_ms, came_ms, node: name }));
  if (!said.node) return { ...said, sandboxes: seen_at(said), total, more };
  const cluster = await node.cluster();
  const others = cluster.nodes.filter((each) => each.name !== said.node && each.state !== 'away');
  const lists = await Promise.all(
    others.map(async ({ name }) => {
      try {
        const there = await first_pages((after) => node.list_of(name, other_patience_ms, after), wanted);
        total += there.total ?? there.sandboxes.length;
        more ||= Boolean(there.next);
        return seen_at(there, name);
      } catch (why) {
        if (why.status === 401) throw why;
        const owned = cluster.sandboxes.filter((each) => each.node === name);
        total += owned.length;
        return owned.map(({ id }) => ({ id, node: name, state: 'unknown', current: false, at_ms: said.now_ms }));
      }
    }),
  );
  // One that moves just now may be in two lists.
  const once = new Map([...lists.flat(), ...seen_at(said, said.node)].map((each) => [each.id, each]));
  return { ...said, cluster, sandboxes: [...once.values()], total, more };
}

/// The table of nodes, which is there only in a cluster.
class NodeTable {
  constructor(section, body) {
    Object.assign(this, { section, body });
  }

  show(cluster) {
    this.section.hidden = !cluster;
    this.body.replaceChildren(...(cluster?.nodes ?? []).map((each) => this.row(each, each.name === cluster.self)));
  }

  row({ name, state, sandboxes, capacity, warm, version, clockAheadMs }, asked) {
    const row = document.createElement('tr');
    row.setAttribute('role', 'row');
    row.dataset.node = name;
    row.dataset.state = state;
    const there = state !== 'away' && capacity > 0;
    const texts = {
      Name: asked ? `${name} (this one)` : name,
      State: state,
      Sandboxes: there ? `${sandboxes} of ${capacity}` : unknown,
      Warm: there ? String(warm) : unknown,
      Clock: there && !asked ? `${clockAheadMs > 0 ? '+' : ''}${clockAheadMs} ms` : unknown,
      Version: version || unknown,
    };
    for (const [label, text] of Object.entries(texts)) {
      const cell = document.createElement('td');
      cell.setAttribute('role', 'cell');
      cell.dataset.label = label;
      if (['Sandboxes', 'Warm', 'Clock'].includes(label)) cell.className = 'number';
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  }
}
