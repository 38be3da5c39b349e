import type { BareRepository } from '@coppice/forge';

const person = {
  GIT_AUTHOR_NAME: 'A',
  GIT_AUTHOR_EMAIL: 'a@example.invalid',
  GIT_COMMITTER_NAME: 'A',
  GIT_COMMITTER_EMAIL: 'a@example.invalid',
};

/** A commit on top of a branch, made of nothing but objects. */
export async function commitFile(
  repository: BareRepository,
  branch: string,
  file: string,
  content: string,
): Promise<string> {
  const parent = (await repository.branch(branch))?.sha;
  const blob = await repository.run(['hash-object', '-w', '--stdin'], { stdin: content });
  const before = parent === undefined ? '' : await repository.run(['ls-tree', parent]);
  const others = before.split('\n').filter((line) => line !== '' && !line.endsWith(`\t${file}`));
  const listing = [...others, `100644 blob ${blob}\t${file}`].join('\n');
  const tree = await repository.run(['mktree'], { stdin: `${listing}\n` });
  const parents = parent === undefined ? [] : ['-p', parent];
  const sha = await repository.run(['commit-tree', ...parents, '-m', `add ${file}`, tree], { env: person });
  if (parent === undefined) await repository.createBranch(branch, sha);
  else await repository.moveBranch(branch, sha, parent);
  return sha;
}
