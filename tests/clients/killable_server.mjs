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

  /**
   * It kills itself at the step, if one is given. `dies`: all that it has started dies with it ('all'), or its spawner alone does
   * ('spawner'), without which it ends. Resolves when it is ready.
   */
  start(step = '', dies = 'server') {
    const stops = step && dies !== 'server';
    const made = spawn('setpriv', this.#words, { env: { ...this.#env, INSULA_FAILPOINT: stops ? `stop:${step}` : step }, stdio: ['ignore', 'pipe', 'pipe'] });
    const mine = { process: made, ended: once(made, 'exit'), said: '' };
    made.stderr.on('data', (some) => { mine.said = (mine.said + some).slice(-20_000); });
    mine.ready = new Promise((resume, fail) => {
      createInterface({ input: made.stdout }).on('line', (line) => { if (line.startsWith('insula is ready on ')) resume(); });
      made.on('exit', () => { fail(new Error(`the server has ended: ${mine.said}`)); });
    });
    mine.ready.catch(() => {});
    made.on('exit', (_, signal) => {
      if (mine.stopping || (signal !== 'SIGKILL' && !mine.has_no_spawner)) return;
      ++this.kills;
      this.start();
    });
    if (stops) this.#wait_for_step(mine, dies);
    this.#now = mine;
    return mine.ready;
  }

  /** At the step it stands still. */
  async #wait_for_step(mine, dies) {
    const { pid } = mine.process;
    for (;; await delay(10)) {
      const is = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
      if (!is) return;
      if (/\) T /.test(is)) break;
    }
    if (mine.stopping) return void mine.process.kill('SIGCONT'); // It came to the step as it ended.
    const started = [...await this.#processes()].filter(([each]) => each !== pid);
    mine.has_no_spawner = true;
    for (const [each, words] of started)
      if (dies === 'all' || words.startsWith('insula-spawner')) try { process.kill(each, 'SIGKILL'); } catch {}
    mine.process.kill(dies === 'all' ? 'SIGKILL' : 'SIGCONT');
  }

  /** Of its state directory: by their pids, what they were started with. */
  async #processes() {
    const all = new Map();
    for (const each of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
      const words = await readFile(`/proc/${each}/cmdline`, 'utf8').catch(() => '');
      if (words.includes(this.state)) all.set(Number(each), words);
    }
    return all;
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
      if ((await this.#processes()).size === 0) return;
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
