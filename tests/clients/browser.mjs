// What the tests in a real browser share. INSULA_URL says where the node is, INSULA_CHROMIUM is the browser.
import assert from 'node:assert/strict';
import { connect, createServer } from 'node:net';

import { chromium } from 'playwright-core';

/// What is waited for at most. Who waits so long has failed; a machine may be busy.
export const patience_ms = 60_000;

export async function launch_browser() {
  return await chromium.launch({
    executablePath: process.env.INSULA_CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox'], // Chromium refuses root otherwise.
  });
}

/// A way to the node that can be cut. A browser that takes it asks for this port, as behind a proxy.
export class Wire {
  #open = new Set();
  #server;

  static async to(url) {
    const { hostname, port } = new URL(url);
    const wire = new Wire();
    wire.#server = createServer((client) => {
      const node = connect(Number(port), hostname);
      for (const [end, other] of [[client, node], [node, client]]) {
        wire.#open.add(end);
        end.on('error', () => {});
        end.on('close', () => {
          wire.#open.delete(end);
          other.destroy();
        });
        end.pipe(other);
      }
    });
    await new Promise((resume) => wire.#server.listen(0, '127.0.0.1', resume));
    wire.url = `http://127.0.0.1:${wire.#server.address().port}`;
    return wire;
  }

  /// Every connection breaks; further ones are taken.
  cut() {
    for (const end of this.#open) end.destroy();
  }

  async close() {
    const closed = new Promise((resume) => this.#server.close(resume));
    this.cut();
    await closed;
  }
}

/// Writes down what a page asks for, and what goes wrong in it.
export class Watch {
  asked = [];
  complaints = [];

  page(page) {
    page.on('request', (request) => this.asked.push(request.url()));
    page.on('websocket', (socket) => this.asked.push(socket.url()));
    page.on('pageerror', (error) => this.complaints.push(String(error)));
    page.on('console', (message) => {
      // A browser notes each refusal and each lost connection as an error. Tests cause both.
      const noted = /^Failed to load resource: |^WebSocket connection to '/.test(message.text());
      if (['error', 'warning'].includes(message.type()) && !noted) this.complaints.push(message.text());
    });
  }

  /// Nobody but the node was asked, and nothing went wrong.
  check(...urls) {
    const own = urls.map((url) => new URL(url).host);
    assert.ok(this.asked.length > 0);
    assert.deepEqual(this.asked.filter((url) => !/^(data|blob):/.test(url) && !own.includes(new URL(url).host)), []);
    assert.deepEqual(this.complaints, []);
  }
}

/// The lines that a terminal shows, without blanks at their ends.
export async function screen_of(page) {
  return await page.locator('.xterm-rows > div').evaluateAll((rows) =>
    rows.map((row) => row.textContent.replaceAll('\u00a0', ' ').trimEnd()),
  );
}

/// Until a terminal shows something: a string that is part of a line, or a pattern for all lines.
export async function until_shown(page, what) {
  const [source, flags] = what instanceof RegExp ? [what.source, what.flags] : [what.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'), ''];
  try {
    await page.waitForFunction(
      ([pattern, how]) => {
        const rows = [...document.querySelectorAll('.xterm-rows > div')];
        const text = rows.map((row) => row.textContent.replaceAll('\u00a0', ' ').trimEnd()).join('\n');
        return new RegExp(pattern, how).test(text);
      },
      [source, flags],
      { timeout: patience_ms },
    );
  } catch {
    assert.fail(`the terminal does not show ${what}, but:\n${(await screen_of(page)).join('\n')}`);
  }
}

/// Types a line into the terminal that has the focus.
export async function type_line(page, line) {
  await page.keyboard.type(line);
  await page.keyboard.press('Enter');
}
