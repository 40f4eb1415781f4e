// A small job of an agent's with OpenSandbox's own client: a program is written into a sandbox, its tests run, it is mended, and
// it serves what it has made. In the clone:
//
//     npm install --prefix examples/opensandbox && node examples/opensandbox/agent.mjs
//
// INSULA_URL says where the server is; SANDBOX_API_KEY is its key, if it has one: the same variable as the server's.
import { ConnectionConfig, Sandbox } from '@alibaba-group/opensandbox';

const url = process.env.INSULA_URL ?? 'http://127.0.0.1:8787';
const connectionConfig = new ConnectionConfig({ domain: url, apiKey: process.env.SANDBOX_API_KEY });

const sandbox = await Sandbox.create({ connectionConfig, image: 'host', timeoutSeconds: 600 });
try {
  const { commands, files } = sandbox;
  await files.writeFiles([
    { path: '/workspace/app/sum.py', data: 'def total(numbers):\n    return sum(numbers) + 1\n' },
    { path: '/workspace/app/test_sum.py', data: 'from sum import total\nassert total([1, 2]) == 3, total([1, 2])\nprint("good")\n' },
  ]);

  const session = await commands.createSession({ workingDirectory: '/workspace/app' });
  let run = await commands.runInSession(session, 'python3 test_sum.py');
  console.log('before:', run.exitCode, run.logs.stdout.at(-1)?.text);
  if (run.exitCode === 0) throw new Error('the mistake was not seen');

  await files.replaceContents([{ path: '/workspace/app/sum.py', oldContent: ' + 1', newContent: '' }]);
  run = await commands.runInSession(session, 'python3 test_sum.py | tee result.txt');
  console.log('after:', run.exitCode, run.logs.stdout.at(-1)?.text);
  if (run.exitCode !== 0) throw new Error('it is not mended');

  const server = await commands.run('exec python3 -m http.server 8000 --directory /workspace/app', { background: true });
  const { endpoint, headers } = await sandbox.getEndpoint(8000);
  let served;
  for (let i = 0; i < 600 && served === undefined; ++i) {
    const answer = await fetch(`${new URL(url).protocol}//${endpoint}/result.txt`, { headers });
    if (answer.ok) served = (await answer.text()).trim();
    else await new Promise((resume) => setTimeout(resume, 100));
  }
  console.log('served:', served);
  if (served !== 'good') throw new Error('it does not serve its result');
  await commands.interrupt(server.id);

  for (const each of await files.listDirectory({ path: '/workspace/app' })) console.log(each.mode, each.size, each.path);
} finally {
  await sandbox.kill();
  await sandbox.close();
}
