// A server that a test ends, kills as by kill -9 and starts again: at one address, on one state directory.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';

export class KillableServer {
  /** How often it was killed since the first start; there was a new one at once, each time. */
  kills = 0;
  #words;
  #env;
  #now;

  /** `config`: a path, or none. */
  constructor({ program, url, key, state, config }) {
    this.state = state;
    this.#words = ['--pdeathsig', 'INT', program, 'serve', '--listen', new URL(url).host, '--state', state, ...(config ? ['--config', config] : [])];
    this.#env = { ...process.env, SANDBOX_API_KEY: key };
  }

  /** It kills itself at the step, if one is given. Resolves when it is ready. */
  start(step = '') {
    const made = spawn('setpriv', this.#words, { env: { ...this.#env, INSULA_FAILPOINT: step }, stdio: ['ignore', 'pipe', 'pipe'] });
    const mine = { process: made, ended: once(made, 'exit'), said: '' };
    made.stderr.on('data', (some) => { mine.said = (mine.said + some).slice(-20_000); });
    mine.ready = new Promise((resume, fail) => {
      createInterface({ input: made.stdout }).on('line', (line) => { if (line.startsWith('insula is ready on ')) resume(); });
      made.on('exit', () => { fail(new Error(`the server has ended: ${mine.said}`)); });
    });
    mine.ready.catch(() => {});
    made.on('exit', (_, signal) => {
      if (signal !== 'SIGKILL' || mine.stopping) return;
      ++this.kills;
      this.start();
    });
    this.#now = mine;
    return mine.ready;
  }

  /** Of the one that is there now. */
  get ready() { return this.#now.ready; }
  get pid() { return this.#now.process.pid; }

  /** By SIGTERM what runs goes on with the next server; after SIGINT nothing is left. */
  async end(signal = 'SIGINT') {
    const mine = this.#now;
    if (!mine || mine.process.exitCode !== null || mine.process.signalCode !== null) return;
    mine.stopping = true;
    mine.process.kill(signal);
    assert.deepEqual(await mine.ended, [0, null], mine.said);
    for (let attempt = 0; signal === 'SIGINT' && attempt < 300; ++attempt) {
      const all = await Promise.all((await readdir('/proc')).filter((each) => /^\d+$/.test(each))
        .map((each) => readFile(`/proc/${each}/cmdline`, 'utf8').catch(() => '')));
      if (!all.some((each) => each.includes(this.state))) return;
      await delay(100);
    }
    if (signal === 'SIGINT') assert.fail('a process of the server is left');
  }

  async kill() {
    const { process: now, ended } = this.#now;
    now.kill('SIGKILL');
    await ended;
    await this.ready;
  }

  /** As programs do: once more when the next server is ready, unless the last one has answered. */
  async persistently(work, attempts = 4) {
    for (let attempt = 1; ; ++attempt) {
      try {
        return await work();
      } catch (why) {
        if (attempt === attempts || why.response) throw why;
        await this.ready.catch(() => {});
        await delay(50);
      }
    }
  }
}
