// Numbers as people read them.

const unknown = '\u2013';

function bytes_text(bytes) {
  if (bytes === undefined) return unknown;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (bytes >= 1024 && unit + 1 < units.length) {
    bytes /= 1024;
    ++unit;
  }
  return `${unit === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}

function age_text(ms) {
  if (!(ms >= 0)) return unknown;
  const seconds = Math.floor(ms / 1000);
  const [days, hours, minutes] = [86_400, 3_600, 60].map((unit) => Math.floor(seconds / unit));
  if (days > 0) return `${days} d ${hours % 24} h`;
  if (hours > 0) return `${hours} h ${minutes % 60} min`;
  if (minutes > 0) return `${minutes} min`;
  return `${seconds} s`;
}

/// To the second, of what is counted down or was measured. Less than nothing is 0 s.
function time_text(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const parts = [[Math.floor(seconds / 3_600), 'h'], [Math.floor(seconds / 60) % 60, 'min'], [seconds % 60, 's']];
  const first = parts.findIndex(([count, unit]) => count > 0 || unit === 's');
  return parts.slice(first).map(([count, unit]) => `${count}\u00a0${unit}`).join(' ');
}

/// The same of what may be far less than a second.
function short_time_text(ms) {
  if (ms === undefined) return unknown;
  return ms < 10_000 ? `${(ms / 1000).toFixed(2)} s` : time_text(ms);
}

/// What time it is at a node now that has said what time it was when its answer came: by performance.now(), which nobody sets.
function node_time(said_ms, came_ms) {
  return said_ms + performance.now() - came_ms;
}

/// An element that has the text already is left alone.
function set_text(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/// In place of what a list of descriptions has: each is a name and a value. What stays is left alone, so that it can be selected.
function show_figures(list, figures) {
  while (list.children.length > figures.length) list.lastElementChild.remove();
  for (const [at, [name, value]] of figures.entries()) {
    let pair = list.children[at];
    if (!pair) {
      pair = list.appendChild(document.createElement('div'));
      pair.append(document.createElement('dt'), document.createElement('dd'));
    }
    set_text(pair.firstChild, name);
    set_text(pair.lastChild, value);
  }
}

/// The share of one processor between two looks at a sandbox.
function cpu_text(before, now) {
  if (before?.cpu_us === undefined || now.cpu_us === undefined) return unknown;
  const passed_us = (now.at_ms - before.at_ms) * 1000;
  const used_us = now.cpu_us - before.cpu_us;
  if (passed_us <= 0 || used_us < 0) return unknown; // Another one by the same id.
  const percent = (100 * used_us) / passed_us;
  return `${percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`;
}
