// Sources of sandboxes, with the SDK of the Vercel Sandbox service, unmodified: the repository and the tarballs are those of
// tests/e2e/sources_site.py. INSULA_URL says where the server is, INSULA_API_KEY with which key. Node.js is started with
// insula-vercel.mjs, in the network of tests/support/on_internet.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, describe, test } from 'node:test';

import { Sandbox } from '@vercel/sandbox';

const key = process.env.INSULA_API_KEY;
assert.ok(process.env.INSULA_URL && key, 'INSULA_URL or INSULA_API_KEY is not set; tests/clients/run starts a server and sets them');

const limit = { timeout: 120_000 };
const scope = { token: key, teamId: 'team_test', projectId: 'prj_sources' };
const open = 'http://a.example/git/app.git', closed = 'http://a.example/private/app.git';
const tarballs = 'http://a.example/tarballs';
const user = 'reader', password = 's3cret-of-the-reader';

/** A sandbox of this source for as long as `use` lasts. */
async function having(source, use, more = {}) {
  const box = await Sandbox.create({ ...scope, source, timeout: 120_000, ...more });
  try {
    await use((script) => box.runCommand('sh', ['-c', script]).then((done) => done.stdout()), box);
  } finally {
    await box.delete();
  }
}

/** Create fails with a message that has `words`, `times` times with the same name; no sandbox is left. */
async function refuses(source, words, times = 1) {
  const name = 'refused';
  for (let time = 0; time < times; ++time) {
    await assert.rejects(Sandbox.create({ ...scope, name, source }), (why) => {
      assert.equal(why.response?.status, 400, why.message);
      assert.equal(why.json.error.code, 'bad_request');
      assert.match(why.json.error.message, words);
      assert.ok(!JSON.stringify(why.json).includes(password));
      return true;
    });
    await assert.rejects(Sandbox.get({ ...scope, name }), (why) => why.response?.status === 404);
  }
  assert.deepEqual((await Sandbox.list(scope)).sandboxes, []);
  const others = await fetch(`${process.env.INSULA_URL}/v1/sandboxes`, { headers: { authorization: `Bearer ${key}` } });
  assert.equal((await others.json()).pagination.totalItems, 0);
}

describe('sources', () => {
  test('V039 a repository, in a directory of its name', limit, () => having({ type: 'git', url: open }, async (sh) => {
    assert.equal(await sh('pwd; ls -A; cd app && cat which && ls -A'), '/vercel/sandbox\napp\nsecond\n.git\n.npmrc\npackage.json\nserver.js\nwhich\n');
    assert.equal(await sh('cd app && git status --porcelain && git rev-list --count HEAD && git branch --show-current && git remote get-url origin'),
      `2\nmain\n${open}\n`);
    assert.equal(await sh('find app ! -user vercel-sandbox'), '');
    assert.equal(await sh('cd app && git fetch -q origin && git checkout -q feature && cat which'), 'feature\n');
  }));
  test('V041 as deep as is asked for', limit, () => having({ type: 'git', url: open, depth: 1 }, async (sh) => {
    assert.equal(await sh('cd app && cat which && git rev-list --count HEAD && git rev-parse --is-shallow-repository'), 'second\n1\ntrue\n');
  }));
  test('V042 a branch, a tag, a commit, with and without a depth', limit, async () => {
    const at = {};
    await having({ type: 'git', url: open }, async (sh) => {
      for (const [which, name] of [['first', 'v1'], ['second', 'main'], ['feature', 'origin/feature']])
        at[which] = (await sh(`cd app && git fetch -q --tags origin '+refs/heads/*:refs/remotes/origin/*' && git rev-parse ${name}`)).trim();
    });
    const wanted = [['feature', 'feature'], ['v1', 'first'], [at.first, 'first'], [at.feature, 'feature'], [at.first.slice(0, 9), 'first']];
    await Promise.all(wanted.map(([revision, which]) => having({ type: 'git', url: open, revision }, async (sh) => {
      assert.equal(await sh('cd app && cat which && git rev-parse HEAD'), `${which}\n${at[which]}\n`, revision);
    })));
    await Promise.all(wanted.slice(0, 4).map(([revision, which]) => having({ type: 'git', url: open, revision, depth: 1 }, async (sh) => {
      assert.equal(await sh('cd app && cat which && git rev-list --count HEAD'), `${which}\n1\n`, revision);
    })));
  });
  test('V040 with a name and a password, which do not stay', limit, () => having({ type: 'git', url: closed, username: user, password }, async (sh) => {
    assert.equal(await sh('cat app/which; git -C app remote get-url origin'), `second\n${closed}\n`);
    assert.equal(await sh('git -C app config --list | grep -i -e helper -e askpass -e header -e reader'), '');
    // Where a program can write, and what processes know; the words are not in the search's own arguments.
    const [one, two] = [password.slice(0, 5), password.slice(5)];
    const basic = Buffer.from(`${user}:${password}`).toString('base64');
    const search = `{ printf '%s%s\\n' ${one} ${two}; printf '%s%s\\n' ${basic.slice(0, 9)} ${basic.slice(9)}; } > /dev/shm/words;
      sudo find /vercel /home /root /tmp /var /etc /run /dev/shm /proc/[0-9]*/environ /proc/[0-9]*/cmdline \\
        -xdev -type f ! -path /dev/shm/words -print0 2>/dev/null | sudo xargs -0 grep -lsF -f /dev/shm/words; rm /dev/shm/words`;
    assert.equal(await sh(search), '');
    assert.equal(await sh(`printf '%s%s' ${one} ${two} > app/left; mkdir -p /tmp/deep; printf '%s%s' ${basic.slice(0, 9)} ${basic.slice(9)} > /tmp/deep/left; ${search}`),
      '/vercel/sandbox/app/left\n/tmp/deep/left\n');
    assert.equal(await sh('ls -A /tmp'), 'deep\n');
    // It was for that one time.
    assert.equal(await sh('cd app && GIT_TERMINAL_PROMPT=0 git fetch -q 2>/dev/null || echo refused'), 'refused\n');
  }));
  test('V040 a wrong password, or none', limit, async () => {
    await refuses({ type: 'git', url: closed, username: user, password: 'wrong' }, /^The git source could not be fetched: .*Authentication failed/);
    await refuses({ type: 'git', url: closed }, /^The git source could not be fetched: .*could not read Username/);
  });
  test('V040 credentials are for the host of the source, and not for one that it redirects to', limit, async () => {
    await refuses({ type: 'git', url: `http://a.example/to/${closed.replace('a.', 'b.')}`, username: user, password }, /could not read Username for 'http:\/\/b\.example'/);
    await having({ type: 'git', url: `http://a.example/to/${closed}`, username: user, password }, async (sh) => {
      assert.equal(await sh('cat app/which'), 'second\n');
    });
  });
  test('V040 credentials in the address do not stay either', limit, async () => {
    await having({ type: 'git', url: closed.replace('//', `//${user}:${encodeURIComponent(password)}@`) }, async (sh) => {
      assert.equal(await sh('cat app/which; git -C app remote get-url origin; grep -r cret-of app/.git; cat app/.git/FETCH_HEAD | grep -c reader'), `second\n${closed}\n0\n`);
    });
  });
  test('V042 a revision that does not exist, and a repository that does not', limit, async () => {
    const none = (revision) => new RegExp(`^The git source could not be fetched: the repository has no branch, tag or commit '${revision}'$`);
    for (const revision of ['no-such-thing', '0123456789012345678901234567890123456789']) {
      await refuses({ type: 'git', url: open, revision }, none(revision));
      await refuses({ type: 'git', url: open, revision, depth: 1 }, none(revision));
    }
    await refuses({ type: 'git', url: open, revision: '--upload-pack=true' }, /revision/);
    await refuses({ type: 'git', url: 'http://a.example/git/other.git' }, /^The git source could not be fetched: .*not found/, 2);
    await refuses({ type: 'git', url: 'http://nowhere.example/app.git' }, /^The git source could not be fetched: .*Could not resolve host/);
    for (const url of ['file:///etc', 'ssh://a.example/app.git', '/vercel', 'ext::sh -c true']) await refuses({ type: 'git', url }, /source\.url/);
  });

  test('V043 a tarball, plain and packed, in the working directory', limit, async () => {
    for (const name of ['app.tgz', 'app.tar']) {
      await having({ type: 'tarball', url: `${tarballs}/${name}` }, async (sh) => {
        assert.equal(await sh('ls -A; cat hello.txt link; bin/tool; find . ! -user vercel-sandbox'), 'bin\nhello.txt\nlink\nhello\nhello\nran\n');
        assert.equal(await sh('ls -A /tmp'), '');
      });
    }
    // By way of another address.
    await having({ type: 'tarball', url: `http://a.example/to/${tarballs.replace('a.', 'b.')}/app.tgz` }, async (sh) => {
      assert.equal(await sh('cat hello.txt'), 'hello\n');
    });
  });
  test('V043 links of a tarball stay links', limit, () => having({ type: 'tarball', url: `${tarballs}/absolute-links.tgz` }, async (sh) => {
    assert.equal(await sh('readlink absolute; cat hello.txt'), '/etc/passwd\nhello\n');
  }));
  test('V043 names from the root are names from the working directory', limit, () => having({ type: 'tarball', url: `${tarballs}/absolute-name.tgz` }, async (sh) => {
    assert.equal(await sh('find . -type f; ls -A /tmp'), './tmp/absolute.txt\n');
  }));
  test('V043 tarballs that are none, or lead out', limit, async () => {
    const failed = /^The tarball could not be fetched: /;
    await refuses({ type: 'tarball', url: `${tarballs}/missing.tgz` }, /^The tarball could not be fetched: .*404/, 2);
    for (const [name, why] of [['text', 'does not look like a tar archive'], ['half', 'unexpected end of file'], ['climbing', "Member name contains '\\.\\.'"],
      ['climbing-by-link', 'up/climbed.txt: Cannot open'], ['absolute-hard-link', 'hard: Cannot hard link']])
      await refuses({ type: 'tarball', url: `${tarballs}/${name}.tgz` }, new RegExp(`^The tarball could not be unpacked: .*${why}`));
    await refuses({ type: 'tarball', url: 'file:///etc/passwd' }, /source\.url/);
    await refuses({ type: 'tarball', url: `http://a.example/to/file:///etc/passwd` }, failed);
  });
});

describe('sources on the machine itself', () => {
  let inside, asked = 0, port;
  before(async () => {
    inside = createServer((_, answer) => { ++asked; answer.end('not for sandboxes'); });
    await new Promise((done) => { inside.listen(0, '::', done); });
    ({ port } = inside.address());
    assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), 'not for sandboxes');
    assert.equal(await (await fetch(`http://203.0.113.1:${port}/`)).text(), 'not for sandboxes');
    asked = 0;
  });
  after(() => { inside?.close(); });

  const failed = /^The (git source|tarball) could not be fetched: /;
  const places = () => [`127.0.0.1:${port}`, `203.0.113.1:${port}`, `[::1]:${port}`, `rebound.example:${port}`, '169.254.169.254', 'metadata.example', 'inner.example', '10.1.2.3'];

  test('V039 V043 are refused', limit, async () => {
    for (const place of places()) {
      await refuses({ type: 'tarball', url: `http://${place}/app.tgz` }, failed);
      await refuses({ type: 'git', url: `http://${place}/app.git` }, failed);
    }
    assert.equal(asked, 0);
  });
  test('V039 V043 and where another site sends to them', limit, async () => {
    for (const place of places()) {
      await refuses({ type: 'tarball', url: `http://a.example/to/http://${place}/app.tgz` }, failed);
      await refuses({ type: 'git', url: `http://a.example/to/http://${place}/app.git` }, failed);
    }
    assert.equal(asked, 0);
  });
  test('V039 V043 and a name that was another place before', limit, async () => {
    const move = (address) => fetch(`http://203.0.113.2:9000/move/moving.example/${address}`);
    const url = 'http://moving.example/tarballs/app.tgz';
    await having({ type: 'tarball', url }, async (sh) => { assert.equal(await sh('cat hello.txt'), 'hello\n'); });
    try {
      for (const address of ['127.0.0.1', '203.0.113.1', '169.254.169.254', '10.1.2.3']) {
        await move(address);
        await refuses({ type: 'tarball', url: url.replace('example', `example:${port}`) }, failed);
      }
    } finally {
      await move('203.0.113.2');
    }
    assert.equal(asked, 0);
  });
  test('V049 a source is fetched before a policy that would refuse it', limit, () => having({ type: 'git', url: open }, async (sh) => {
    assert.equal(await sh('cat app/which'), 'second\n');
    assert.equal(await sh('curl -sS -m 10 http://a.example/ 2>/dev/null || echo refused'), 'refused\n');
  }, { networkPolicy: 'deny-all' }));
});
