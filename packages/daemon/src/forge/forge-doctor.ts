import { randomBytes } from 'node:crypto';
import type { BareRepository, Forge } from '@coppice/forge';
import { CoppiceError, type ForgeDoctor } from '@coppice/protocol';

/** The empty tree, which every repository knows. */
const emptyTree = '4b825dc642cb6eb9a060e54bf8d69288fbee4904';

type Step = ForgeDoctor['steps'][number];

export interface Examined {
  readonly kind: keyof typeof needs;
  readonly forge: Forge;
  /** Where commits are made: the repository itself, or the copy of it that is here. */
  readonly repository: BareRepository;
  readonly defaultBranch: string;
  readonly bringIn: (branches: readonly string[]) => Promise<void>;
  readonly advance: (branch: string, to: string, expected: string) => Promise<void>;
}

/** What a token needs for each kind of step, in the words of each forge. */
const needs = {
  builtin: { read: '', code: '', pulls: '', checks: '' },
  github: {
    read: '`Metadata: read` and `Contents: read`',
    code: '`Contents: read and write`',
    pulls: '`Pull requests: read and write`',
    checks: '`Commit statuses: read and write` and `Checks: read`',
  },
  gitlab: {
    read: 'the scope `api` and the role Reporter',
    code: 'the scope `api` and the role Developer',
    pulls: 'the scope `api` and the role Developer',
    checks: 'the scope `api` and the role Developer',
  },
  gitea: {
    read: '`read:repository`',
    code: '`write:repository`',
    pulls: '`write:repository` and `write:issue`',
    checks: '`write:repository`',
  },
} as const;

/**
 * Goes through what the branch workflow needs of a forge: a branch, a commit on it, a draft pull request that is found, changed and
 * closed, a check. The branch is scratch and is removed at the end, whatever failed before.
 */
export async function examineForge({
  kind,
  forge,
  repository,
  defaultBranch,
  bringIn,
  advance,
}: Examined): Promise<ForgeDoctor> {
  const steps: Step[] = [];
  const branch = `coppice-doctor/${randomBytes(6).toString('hex')}`;
  const attempt = async <T>(
    step: string,
    what: keyof (typeof needs)['builtin'],
    work: () => Promise<T>,
  ): Promise<T | undefined> => {
    try {
      const result = await work();
      steps.push({ step, ok: true, detail: typeof result === 'string' ? result : '' });
      return result;
    } catch (error) {
      if (!(error instanceof CoppiceError)) throw error;
      const isAllowed =
        kind === 'builtin' || !['forbidden', 'unauthenticated', 'not_found'].includes(error.code);
      const lack = isAllowed ? '' : ` The token needs ${needs[kind][what]}.`;
      steps.push({ step, ok: false, detail: `${error.message} ${error.hint}${lack}`.trim() });
      return undefined;
    }
  };
  const base = await attempt('find the default branch', 'read', async () => {
    const found = await forge.branch(await forge.defaultBranch());
    if (found === undefined)
      throw new CoppiceError('not_found', `${defaultBranch} has no commit yet`, {
        hint: `Push one: git push … ${defaultBranch}`,
      });
    await bringIn([found.name]);
    return found.sha;
  });
  if (base === undefined) return { ok: false, steps };
  const made = await attempt(
    'make a scratch branch',
    'code',
    async () => (await forge.createBranch(branch, base)).name,
  );
  if (made !== undefined) {
    const sha = await attempt('push a commit to it', 'code', async () => {
      await bringIn([branch]);
      const sha = await commitOn(repository, base);
      await advance(branch, sha, base);
      return sha;
    });
    const number = await attempt('open a draft pull request', 'pulls', async () =>
      String(
        (
          await forge.createPull({
            head: branch,
            base: defaultBranch,
            title: 'coppice doctor',
            body: 'A test; it closes itself.',
            draft: true,
          })
        ).number,
      ),
    );
    if (number !== undefined) {
      await attempt('find it by its branch', 'pulls', async () => {
        const found = await forge.findPull(branch);
        if (String(found?.number) !== number) throw new CoppiceError('not_found', 'it is not found again');
      });
      await attempt('change it', 'pulls', async () => {
        await forge.updatePull(Number(number), { body: 'A test that is over.' });
      });
      if (sha !== undefined)
        await attempt('report a check', 'checks', async () => {
          await forge.reportCheck(sha, {
            name: 'coppice-doctor',
            state: 'success',
            description: '',
            url: null,
          });
          if ((await forge.checks(sha)).length === 0)
            throw new CoppiceError('not_found', 'the check is not found again');
        });
      await attempt('close it', 'pulls', async () => {
        await forge.closePull(Number(number));
      });
    }
    await attempt('remove the scratch branch', 'code', async () => {
      await forge.deleteBranch(branch);
      if (kind !== 'builtin') await repository.deleteBranch(branch);
    });
  }
  return { ok: steps.every(({ ok }) => ok), steps };
}

async function commitOn(repository: BareRepository, parent: string): Promise<string> {
  const person = { GIT_AUTHOR_NAME: 'Coppice doctor', GIT_AUTHOR_EMAIL: 'doctor@coppice.invalid' };
  const env = {
    ...person,
    GIT_COMMITTER_NAME: 'Coppice doctor',
    GIT_COMMITTER_EMAIL: 'doctor@coppice.invalid',
  };
  await repository.run(['hash-object', '-w', '-t', 'tree', '/dev/null']);
  return repository.run(['commit-tree', '-p', parent, '-m', 'coppice doctor', emptyTree], { env });
}
