// One terminal on the screen: xterm.js and its connection. The terminal itself lives in the sandbox and outlives both, so a
// connection that breaks is made again and gets the screen as it is.

const first_wait_ms = 500;
const longest_wait_ms = 15_000;
const input_frame_bytes = 1 << 16;
// So much output waits to be drawn before the rest is let go: whoever comes again gets the newest of it.
const undrawn_bytes = 8 << 20;
const try_again_later = 1013; // The node's word for who is too slow.

const themes = {
  dark: { background: '#101418', foreground: '#dfe4e8', cursor: '#4fc3d5', selectionBackground: '#2f4a57' },
  light: {
    background: '#ffffff', foreground: '#1c2429', cursor: '#0b7285', selectionBackground: '#bfe3ea', black: '#1c2429', red: '#b3261e',
    green: '#1b6e3c', yellow: '#7a5900', blue: '#1f55b5', magenta: '#8a2f8f', cyan: '#0b6a7a', white: '#5f6b73',
    brightBlack: '#56626a', brightRed: '#c0342b', brightGreen: '#2a7d4b', brightYellow: '#8a6800', brightBlue: '#2f66c9',
    brightMagenta: '#9c44a1', brightCyan: '#16798a', brightWhite: '#39434a',
  },
};
const dark = matchMedia('(prefers-color-scheme: dark)');

class TerminalView {
  /// `tell(words, again)`: how it stands; `again` names what again() would do, if there is something. `may_come_back`
  /// resolves to whether the sandbox still lives, and rejects when that cannot be told. `typed` may change what is typed.
  constructor(place, id, { tell, may_come_back, leave, typed, screen_reader }) {
    Object.assign(this, { id, tell, may_come_back });
    this.wait_ms = first_wait_ms;
    this.undrawn = 0;
    this.xterm = new Terminal({
      fontFamily: 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace',
      fontSize: 14,
      lineHeight: 1.15, // Or some fonts lose their underscores.
      cursorBlink: !matchMedia('(prefers-reduced-motion: reduce)').matches,
      minimumContrastRatio: 4.5,
      scrollback: 10_000,
      disableStdin: true,
      screenReaderMode: screen_reader,
      theme: themes[dark.matches ? 'dark' : 'light'],
    });
    const fit = new FitAddon.FitAddon();
    this.xterm.loadAddon(fit);
    this.xterm.open(place);
    // The one key that the terminal does not get.
    this.xterm.attachCustomKeyEventHandler((event) => {
      if (!(event.ctrlKey && event.shiftKey && event.code === 'KeyL')) return true;
      event.preventDefault();
      if (event.type === 'keydown') leave();
      return false;
    });
    const encoder = new TextEncoder();
    this.xterm.onData((text) => this.type(encoder.encode(typed(text))));
    this.xterm.onBinary((text) => this.type(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    this.xterm.onResize((size) => this.resize(size));
    this.until_closed = new AbortController();
    const { signal } = this.until_closed;
    dark.addEventListener('change', () => (this.xterm.options.theme = themes[dark.matches ? 'dark' : 'light']), { signal });
    // The old connection may be one that nobody has heard of since the machine slept.
    addEventListener('online', () => this.socket && this.connect(), { signal });
    // Ctrl+W deletes a word in a shell; a browser closes the page, and tells nothing of it but that Ctrl is down.
    let control = false;
    for (const each of ['keydown', 'keyup', 'blur'])
      addEventListener(each, (event) => (control = event.ctrlKey === true), { signal, capture: true });
    addEventListener('beforeunload', (event) => control && this.ready && event.preventDefault(), { signal });
    const observer = new ResizeObserver(() => fit.fit());
    observer.observe(place);
    signal.addEventListener('abort', () => observer.disconnect());
    fit.fit();
  }

  connect() {
    this.drop();
    this.tell('Connecting\u2026');
    const socket = new WebSocket(node.terminal_address(this.id, this.xterm));
    socket.binaryType = 'arraybuffer';
    this.socket = socket;
    this.fresh = true; // Nothing of this connection has been drawn.
    this.behind = false; // It has brought more than can be drawn.
    this.ended = undefined;
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket) return;
      if (typeof data === 'string') this.hear(JSON.parse(data));
      else this.draw(new Uint8Array(data));
    };
    socket.onclose = ({ code }) => {
      if (socket === this.socket) this.lost(code);
    };
  }

  /// What comes is all that there is to see. xterm.reset() would overtake what waits to be drawn, and would not end a
  /// sequence that the last connection has cut in half.
  begin() {
    if (this.fresh) this.xterm.write('\x18\x1bc');
    this.fresh = false;
  }

  /// Does it when all that has come is drawn, if it is still this connection then.
  once_drawn(what) {
    const { socket } = this;
    this.xterm.write('', () => {
      if (socket === this.socket) what();
    });
  }

  draw(bytes) {
    if (this.behind) return;
    this.begin();
    this.undrawn += bytes.length;
    this.xterm.write(bytes, () => (this.undrawn -= bytes.length));
    if (this.undrawn <= undrawn_bytes) return;
    this.behind = true; // Until then the connection is for what is typed: Ctrl+C, for one.
    this.tell('Catching up\u2026');
    this.once_drawn(() => this.connect());
  }

  hear(message) {
    if (message.type === 'ready') {
      this.begin();
      this.ready = true;
      this.wait_ms = first_wait_ms;
      this.resize(this.xterm); // The terminal may have been made for another screen.
      // Questions to a terminal that are drawn again have been answered long ago.
      this.once_drawn(() => {
        this.xterm.options.disableStdin = false;
        this.tell('Connected');
      });
    } else if (message.type === 'exit') {
      this.ended = `The shell has ended (${message.signal ?? message.code}).`;
    } else if (message.type === 'error') {
      this.ended = this.ready ? undefined : message.message; // Of a message of ours, once it is ready.
    }
  }

  /// The connection has gone: for good, if the terminal has said so.
  lost(code) {
    this.drop();
    if (this.ended) return this.tell(this.ended, 'New terminal');
    this.come_back(code === try_again_later ? 'Catching up\u2026' : undefined);
  }

  async come_back(words = 'Disconnected. Trying again\u2026') {
    const wait = this.wait_ms * (0.75 + Math.random() / 2);
    this.wait_ms = Math.min(2 * this.wait_ms, longest_wait_ms);
    this.tell(words, 'Try now');
    const attempt = (this.attempt = {});
    await new Promise((resume) => setTimeout(resume, wait));
    if (document.hidden)
      await new Promise((resume) => document.addEventListener('visibilitychange', resume, { once: true }));
    if (attempt === this.attempt) this.connect_if_alive();
  }

  /// A sandbox that has gone is not started again only because somebody was still looking.
  async connect_if_alive() {
    const attempt = (this.attempt = {});
    const lives = await this.may_come_back().catch(() => undefined);
    if (attempt !== this.attempt) return;
    if (lives === undefined) this.come_back();
    else if (lives) this.connect();
    else this.tell('This sandbox has been stopped or deleted.', 'Start it again');
  }

  again() {
    this.connect();
    this.xterm.focus();
  }

  type(bytes) {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    for (let at = 0; at < bytes.length; at += input_frame_bytes)
      this.socket.send(bytes.subarray(at, at + input_frame_bytes));
  }

  /// A key that is no key of the keyboard.
  press(text, arrow, control) {
    const before_arrow = control ? '\x1b[1;5' : this.xterm.modes.applicationCursorKeysMode ? '\x1bO' : '\x1b[';
    this.xterm.input(arrow ? before_arrow + arrow : text);
  }

  resize({ cols, rows }) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type: 'resize', cols, rows }));
  }

  drop() {
    this.attempt = undefined;
    const { socket } = this;
    this.socket = undefined;
    this.ready = false;
    this.xterm.options.disableStdin = true;
    socket?.close();
  }

  close() {
    this.until_closed.abort();
    this.drop();
    this.xterm.dispose();
  }
}
