import { plural } from '@coppice/console';
import { shortId } from '../../index.ts';
import type { JvsCommand } from '../command.ts';

export const info: JvsCommand = {
  name: 'info',
  usage: '',
  summary: 'show the workspace in a few lines',
  options: [],
  least: 0,
  most: 0,
  async run(context) {
    const workspace = await context.open();
    const { repository, layout, state } = workspace.session;
    const head = state.worktrees.get(workspace.worktree)?.head_snapshot_id ?? null;
    const answer = {
      format_version: repository.format_version,
      repo_id: repository.repo_id,
      repo_root: layout.root,
      snapshot_engine: repository.engine,
      requested_engine: repository.requested_engine,
      total_snapshots: state.snapshots.size,
      total_worktrees: state.worktrees.size,
      worktree: workspace.worktree,
      head_snapshot_id: head,
    };
    context.answer(answer, () => [
      `workspace  ${layout.root}`,
      `engine     ${repository.engine}${repository.requested_engine ? ` (${repository.requested_engine} was asked for)` : ''}`,
      `worktree   ${workspace.worktree} (${plural(state.worktrees.size, 'worktree')} in all)`,
      `head       ${head ? shortId(head) : '-'}`,
      `snapshots  ${state.snapshots.size}`,
    ]);
    return 0;
  },
};
