// One terminal on the screen: xterm.js and its connection. The terminal itself lives in the sandbox and outlives both, so a
// connection that breaks is made again and gets the screen as it is.

const first_wait_ms = 500;
const longest_wait_ms = 15_000;
const input_frame_bytes = 1 << 16;
// So much output waits to be drawn before we go: whoever comes back gets the newest of it.
const undrawn_bytes = 8 << 20;

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
  /// resolves to whether the sandbox still lives, and rejects when that cannot be told.
  constructor(place, id, { tell, may_come_back, leave }) {
    Object.assign(this, { id, tell, may_come_back });
    this.wait_ms = first_wait_ms;
    this.xterm = new Terminal({
      fontFamily: 'ui-monospace, "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace',
      fontSize: 14,
      lineHeight: 1.15, // Or some fonts lose their underscores.
      cursorBlink: !matchMedia('(prefers-reduced-motion: reduce)').matches,
      minimumContrastRatio: 4.5,
      scrollback: 10_000,
      disableStdin: true,
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
    this.xterm.onData((text) => this.type(encoder.encode(text)));
    this.xterm.onBinary((text) => this.type(Uint8Array.from(text, (c) => c.charCodeAt(0))));
    this.xterm.onResize((size) => this.resize(size));
    this.until_closed = new AbortController();
    const { signal } = this.until_closed;
    dark.addEventListener('change', () => (this.xterm.options.theme = themes[dark.matches ? 'dark' : 'light']), { signal });
    // The old connection may be one that nobody has heard of since the machine slept.
    addEventListener('online', () => this.socket && this.connect(), { signal });
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
    this.undrawn = 0;
    this.ended = undefined;
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket) return;
      if (typeof data === 'string') this.hear(JSON.parse(data));
      else this.draw(new Uint8Array(data));
    };
    socket.onclose = () => {
      if (socket === this.socket) this.lost();
    };
  }

  draw(bytes) {
    if (this.fresh) this.xterm.reset(); // What comes is all that there is to see.
    this.fresh = false;
    this.undrawn += bytes.length;
    if (this.undrawn > undrawn_bytes) return this.connect();
    const { socket } = this;
    this.xterm.write(bytes, () => {
      if (socket === this.socket) this.undrawn -= bytes.length;
    });
  }

  hear(message) {
    if (message.type === 'ready') {
      if (this.fresh) this.xterm.reset();
      this.fresh = false;
      this.wait_ms = first_wait_ms;
      this.xterm.options.disableStdin = false;
      this.resize(this.xterm); // The terminal may have been made for another screen.
      this.tell('Connected');
    } else if (message.type === 'exit') {
      this.ended = `The shell has ended (${message.signal ?? message.code}).`;
    } else if (message.type === 'error') {
      this.ended = this.xterm.options.disableStdin ? message.message : undefined; // Else of a message of ours.
    }
  }

  /// The connection has gone: for good, if the terminal has said so.
  lost() {
    this.socket = undefined;
    this.xterm.options.disableStdin = true;
    if (this.ended) return this.tell(this.ended, 'New terminal');
    this.come_back();
  }

  async come_back() {
    const wait = this.wait_ms * (0.75 + Math.random() / 2);
    this.wait_ms = Math.min(2 * this.wait_ms, longest_wait_ms);
    this.tell('Disconnected. Trying again\u2026', 'Try now');
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

  resize({ cols, rows }) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type: 'resize', cols, rows }));
  }

  drop() {
    this.attempt = undefined;
    const { socket } = this;
    this.socket = undefined;
    this.xterm.options.disableStdin = true;
    socket?.close();
  }

  close() {
    this.until_closed.abort();
    this.drop();
    this.xterm.dispose();
  }
}
