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

/// The share of one processor between two looks at a sandbox.
function cpu_text(before, now) {
  if (before?.cpu_us === undefined || now.cpu_us === undefined) return unknown;
  const passed_us = (now.at_ms - before.at_ms) * 1000;
  const used_us = now.cpu_us - before.cpu_us;
  if (passed_us <= 0 || used_us < 0) return unknown; // Another one by the same id.
  const percent = (100 * used_us) / passed_us;
  return `${percent < 10 ? percent.toFixed(1) : Math.round(percent)} %`;
}
