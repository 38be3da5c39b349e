import { createHmac } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { BareRepository, BuiltinForge, Git } from '@coppice/forge';
import { describeForge, type ForgeBench } from '@coppice/testkit';
import { openDatabase } from '../src/db/open-database.ts';
import { State } from '../src/db/state.ts';
import { KeyedLock } from '../src/journal/keyed-lock.ts';
import { commitFile } from './commit-file.ts';

const open = async (): Promise<ForgeBench> => {
  const directory = await mkdtemp(join(tmpdir(), 'coppice-forge-'));
  const state = new State(openDatabase(join(directory, 'coppice.db'), join(directory, 'backup')));
  const git = new Git({ maxPackBytes: 1 << 24 });
  const repository = await BareRepository.create(git, join(directory, 'one.git'), 'main');
  state.forge.insertRepository({
    id: 'one',
    name: 'one',
    kind: 'builtin',
    defaultBranch: 'main',
    url: null,
    remote: null,
    createdAtMs: 0,
  });
  await commitFile(repository, 'main', 'README.md', 'hello\n');
  const locks = new KeyedLock();
  const forge = new BuiltinForge({
    id: 'one',
    name: 'one',
    defaultBranch: 'main',
    url: 'http://forge.invalid/one',
    repository,
    records: state.forge,
    exclusive: (work) => locks.exclusive('one', work),
  });
  const issue = await forge.createIssue({ title: 'Dark mode', body: '', type: 'feature', critical: false });
  return {
    forge,
    issueId: issue.id,
    push: (branch, file, content) => commitFile(repository, branch, file, content),
    review: async (pull, verdict) => {
      await forge.review(pull, 'ann', { state: verdict, body: '' });
    },
    webhook: (secret, body) => ({
      headers: {
        'x-coppice-event': 'pull_request',
        'x-coppice-signature-256': `sha256=${createHmac('sha256', secret).update(body).digest('hex')}`,
      },
      body: Buffer.from(body),
    }),
    close: async () => {
      state.close();
      await rm(directory, { recursive: true });
    },
  };
};

describeForge('that is built in', open);
