// A workshop that stays as it was left: the first run of this program installs a package, each later one finds it there, also after
// a restart of the service. Nothing in here knows of Insula. In the clone:
//
//     npm install --prefix examples/vercel
//     INSULA_URL=http://127.0.0.1:8787 node --import ./http/vercel/insula-vercel.mjs examples/vercel/persistent.mjs
//
// VERCEL_TOKEN, VERCEL_TEAM_ID and VERCEL_PROJECT_ID are the credentials: `insula token vercel` prints them. PACKAGE is what npm
// installs.
import { Sandbox } from '@vercel/sandbox';

const wanted = process.env.PACKAGE ?? 'cowsay';
const { VERCEL_TOKEN: token, VERCEL_TEAM_ID: teamId, VERCEL_PROJECT_ID: projectId } = process.env;

const sandbox = await Sandbox.getOrCreate({
  ...(token && { token, teamId, projectId }),
  name: 'workshop',
  resume: true,
  runtime: 'node24',
  timeout: 10 * 60_000,
  keepLastSnapshots: { count: 3 },
  onCreate: async (box) => {
    console.log(`Installing ${wanted}...`);
    const install = await box.runCommand({ cmd: 'npm', args: ['install', '--global', wanted], sudo: true, stdout: process.stdout, stderr: process.stderr });
    if (install.exitCode !== 0) throw new Error(`npm install has failed with ${install.exitCode}`);
  },
  onResume: async (box) => { console.log(`Going on with ${box.sourceSnapshotId}.`); },
});
try {
  const modules = await (await sandbox.runCommand('npm', ['root', '--global'])).stdout();
  const list = await sandbox.runCommand('ls', [modules.trim()]);
  console.log(`It has: ${(await list.stdout()).trim().split('\n').join(', ')}.`);
  await sandbox.runCommand('sh', ['-c', 'date >> visits']);
  const visits = await sandbox.runCommand('sh', ['-c', 'wc -l < visits']);
  console.log(`Visit ${(await visits.stdout()).trim()}.`);
} finally {
  const { snapshot } = await sandbox.stop();
  console.log(`Stopped with ${snapshot.id}, ${Math.ceil(snapshot.sizeBytes / 1024)} KiB.`);
}
