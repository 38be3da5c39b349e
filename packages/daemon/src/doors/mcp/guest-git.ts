import { GitRepository, type GitTrouble } from '../../git/git-repository.ts';
import type { ToolContext } from './tool-context.ts';

const hints: Readonly<Record<GitTrouble, string>> = {
  no_repository: 'Give the directory of a repository as path, or make one with git_clone.',
  login: 'Give the token once with set_env, as GIT_TOKEN, then call again.',
  network: 'Allow the internet with network_policy, allow_internet: true, then call again.',
  exists: 'Call git_clone with another path, one that is not there yet.',
  other: 'Read what git says; workspace_git_status shows the state of the repository.',
};

/** A repository for a tool: commands are its calls, and advice names other tools. */
export class GuestGit extends GitRepository {
  constructor(context: ToolContext, id: string, path: string) {
    super((body) => {
      context.secrets.addEnvironment(body.env ?? {});
      return context.call('exec', { params: { sandbox: id }, body });
    }, path);
  }

  protected override hint(trouble: GitTrouble): string {
    return hints[trouble];
  }
}
