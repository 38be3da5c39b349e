import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Sandbox } from '@coppice/sdk';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Internet, nameServer, server } from './internet.ts';

const resolver =
  'echo "nameserver 192.0.2.53" > /etc/resolv.conf; echo "hosts: files dns" > /etc/nsswitch.conf';

let internet: Internet;
let daemon: RunningDaemon;
let directory: string;
let sandbox: Sandbox;

const git = (...args: string[]): string =>
  execFileSync('git', ['-c', 'user.name=t', '-c', 'user.email=t@example.com', ...args], { encoding: 'utf8' });
const branches = (repository: string): string =>
  git('-C', join(directory, repository), 'branch', '--list', '--format=%(refname:short)');

/** Two repositories on a server of git's own, behind TLS and a password. */
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-git-'));
  for (const repository of ['me/app.git', 'me/other.git']) {
    git('init', '-q', '--bare', '-b', 'main', join(directory, repository));
    git('-C', join(directory, repository), 'config', 'http.receivepack', 'true');
  }
  const work = join(directory, 'work');
  git('init', '-q', '-b', 'main', work);
  git('-C', work, 'commit', '-q', '--allow-empty', '-m', 'first');
  for (const repository of ['me/app.git', 'me/other.git'])
    git('-C', work, 'push', '-q', join(directory, repository), 'main');
  internet = await Internet.open({ 'git.example.com': server }, { GIT_REPOSITORIES: directory });
  const file = join(directory, 'authority.pem');
  writeFileSync(file, internet.authority);
  daemon = await RunningDaemon.start({
    netns: internet.host,
    programs: ['git', 'git-remote-https'],
    config: { gateway: { resolvers: [`${nameServer}:53`], authorities: [file] } },
  });
  await daemon.client.secrets.set('forge', 'git-token-1234', {
    use: {
      hosts: ['git.example.com'],
      place: { kind: 'basic', user: 'bot' },
      git: [{ repository: 'git/me/app', push: ['agent/*'] }, { repository: 'git/me/read' }],
    },
  });
  sandbox = await daemon.client.sandboxes.create({
    network: { allow: ['git.example.com', 'secret:forge'] },
    env: {
      GIT_EXEC_PATH: '/usr/bin',
      GIT_TERMINAL_PROMPT: '0',
      ...{ GIT_AUTHOR_NAME: 'a', GIT_AUTHOR_EMAIL: 'a@example.com' },
      ...{ GIT_COMMITTER_NAME: 'a', GIT_COMMITTER_EMAIL: 'a@example.com' },
    },
  });
  await sandbox.exec(['sh', '-c', resolver]);
});
afterAll(async () => {
  await daemon?.[Symbol.asyncDispose]();
  await internet?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

const sh = async (command: string): Promise<string> => {
  const { stdout, stderr } = await sandbox.exec(['sh', '-c', command], { timeout_ms: 60_000 });
  return `${stdout}${stderr}`;
};

test('git clones and pushes through the gateway to the branches that are allowed, without a password', async () => {
  const said = await sh(
    'cd /workspace && git clone -q https://git.example.com/git/me/app.git && cd app && echo hi > a && git add a && git commit -q -m two && git push -q origin HEAD:agent/one && echo pushed',
  );
  expect(said).toContain('pushed');
  expect(branches('me/app.git')).toContain('agent/one');
  expect(await sh('cat /workspace/app/.git/config; env')).not.toContain('git-token-1234');
});

test('a push to another branch is refused with a sentence that git shows, and nothing of it arrives', async () => {
  const said = await sh('cd /workspace/app && git push origin HEAD:main HEAD:agent/two');
  expect(said).toContain('may push to agent/* of git/me/app, and not to refs/heads/main');
  expect(said).toContain('[remote rejected] HEAD -> main (not a branch that this sandbox may push to)');
  expect(branches('me/app.git')).not.toContain('agent/two');
  const log = git('-C', join(directory, 'me/app.git'), 'log', '--format=%s', 'main');
  expect(log).toBe('first\n');
  // Neither a tag nor a branch that goes away.
  expect(await sh('cd /workspace/app && git push origin HEAD:refs/tags/v1')).toContain('remote rejected');
  expect(await sh('cd /workspace/app && git push origin :main')).toContain('remote rejected');
  expect(branches('me/app.git')).toContain('main');
});

test('a repository without a rule cannot be fetched, and one without branches cannot be pushed to', async () => {
  const other = await sh('cd /tmp && git clone https://git.example.com/git/me/other.git');
  expect(other).toContain('no rule for the repository git/me/other');
  const around = await sh('cd /tmp && git clone https://git.example.com/git/me/app.git/../other.git x');
  expect(around).toContain('error: 403');
  const read = await sh('cd /workspace/app && git push https://git.example.com/git/me/read HEAD:main');
  expect(read).toContain('may fetch git/me/read, and not push to it');
});
