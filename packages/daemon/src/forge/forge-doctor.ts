import { randomBytes } from 'node:crypto';
import type { BareRepository, Forge } from '@coppice/forge';
import { CoppiceError, type ForgeDoctor } from '@coppice/protocol';

/** The empty tree, which every repository knows. */
const emptyTree = '4b825dc642cb6eb9a060e54bf8d69288fbee4904';

type Step = ForgeDoctor['steps'][number];

/**
 * Goes through what the branch workflow needs of a forge: a branch, a commit on it, a draft pull request that is found, changed and
 * closed, a check. The branch is scratch and is removed at the end, whatever failed before.
 */
export async function examineForge(
  forge: Forge,
  repository: BareRepository,
  defaultBranch: string,
): Promise<ForgeDoctor> {
  const steps: Step[] = [];
  const branch = `coppice-doctor/${randomBytes(6).toString('hex')}`;
  const attempt = async <T>(step: string, work: () => Promise<T>): Promise<T | undefined> => {
    try {
      const result = await work();
      steps.push({ step, ok: true, detail: typeof result === 'string' ? result : '' });
      return result;
    } catch (error) {
      if (!(error instanceof CoppiceError)) throw error;
      steps.push({ step, ok: false, detail: `${error.message} ${error.hint}` });
      return undefined;
    }
  };
  const base = await attempt('find the default branch', async () => {
    const found = await forge.branch(await forge.defaultBranch());
    if (found === undefined)
      throw new CoppiceError('not_found', `${defaultBranch} has no commit yet`, {
        hint: `Push one: git push … ${defaultBranch}`,
      });
    return found.sha;
  });
  if (base === undefined) return { ok: false, steps };
  const made = await attempt(
    'make a scratch branch',
    async () => (await forge.createBranch(branch, base)).name,
  );
  if (made !== undefined) {
    const sha = await attempt('commit on it', () => commitOn(repository, branch, base));
    const number = await attempt('open a draft pull request', async () =>
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
      await attempt('find it by its branch', async () => {
        const found = await forge.findPull(branch);
        if (String(found?.number) !== number) throw new CoppiceError('not_found', 'it is not found again');
      });
      await attempt('change it', async () => {
        await forge.updatePull(Number(number), { body: 'A test that is over.' });
      });
      if (sha !== undefined)
        await attempt('report a check', async () => {
          await forge.reportCheck(sha, {
            name: 'coppice-doctor',
            state: 'success',
            description: '',
            url: null,
          });
          if ((await forge.checks(sha)).length === 0)
            throw new CoppiceError('not_found', 'the check is not found again');
        });
      await attempt('close it', async () => {
        await forge.closePull(Number(number));
      });
    }
    await attempt('remove the scratch branch', () => forge.deleteBranch(branch));
  }
  return { ok: steps.every(({ ok }) => ok), steps };
}

async function commitOn(repository: BareRepository, branch: string, parent: string): Promise<string> {
  const person = { GIT_AUTHOR_NAME: 'Coppice doctor', GIT_AUTHOR_EMAIL: 'doctor@coppice.invalid' };
  const env = {
    ...person,
    GIT_COMMITTER_NAME: 'Coppice doctor',
    GIT_COMMITTER_EMAIL: 'doctor@coppice.invalid',
  };
  await repository.run(['hash-object', '-w', '-t', 'tree', '/dev/null']);
  const sha = await repository.run(['commit-tree', '-p', parent, '-m', 'coppice doctor', emptyTree], { env });
  await repository.moveBranch(branch, sha, parent);
  return sha;
}
