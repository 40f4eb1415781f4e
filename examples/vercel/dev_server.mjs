// The development server of a repository, in a sandbox of its own, as the documentation of the Vercel Sandbox service shows it.
// Nothing in here knows of Insula. In the clone:
//
//     npm install --prefix examples/vercel
//     INSULA_URL=http://127.0.0.1:8787 node --import ./http/vercel/insula-vercel.mjs examples/vercel/dev_server.mjs
//
// VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID are the credentials: `insula token vercel` prints them. REPOSITORY_URL is an
// application whose `npm run dev` listens on port 3000.
import { Sandbox } from '@vercel/sandbox';
import { setTimeout as delay } from 'node:timers/promises';

const url = process.env.REPOSITORY_URL ?? 'https://github.com/vercel/sandbox-example-next.git';
const cwd = url.split('/').at(-1).replace(/\.git$/, ''); // Where the service clones to.
const { VERCEL_TOKEN: token, VERCEL_TEAM_ID: teamId, VERCEL_PROJECT_ID: projectId } = process.env;

const sandbox = await Sandbox.create({
  ...(token && { token, teamId, projectId }),
  source: { type: 'git', url },
  resources: { vcpus: 2 },
  timeout: 10 * 60_000,
  ports: [3000],
  runtime: 'node24',
});
try {
  console.log(`Sandbox ${sandbox.name} has the repository.`);

  console.log('Installing its dependencies...');
  const install = await sandbox.runCommand({ cmd: 'npm', args: ['install'], cwd, stdout: process.stdout, stderr: process.stderr });
  if (install.exitCode !== 0) throw new Error(`npm install has failed with ${install.exitCode}`);

  console.log('Starting its development server...');
  const server = await sandbox.runCommand({ cmd: 'npm', args: ['run', 'dev'], cwd, detached: true });

  const page = sandbox.domain(3000);
  let answer;
  for (let attempt = 0; attempt < 600 && !answer?.ok; ++attempt) {
    if (attempt > 0) await delay(200);
    answer = await fetch(page);
  }
  if (!answer.ok) throw new Error(`${page} answers ${answer.status}: ${await server.output()}`);
  console.log(`${page} says:`);
  console.log(await answer.text());
} finally {
  await sandbox.stop();
}
console.log('Stopped.');
