import type { JvsCommand } from '../command.ts';
import { answerRestored } from '../restored.ts';

const stepCommand = (step: 'undo' | 'redo', summary: string): JvsCommand => ({
  name: step,
  usage: '',
  summary,
  options: [],
  least: 0,
  most: 0,
  async run(context) {
    const workspace = await context.open();
    const target = workspace.beforeLast(step);
    answerRestored(context, target, await workspace.restore(target, { step }));
    return 0;
  },
});

export const undo = stepCommand(
  'undo',
  'undo the last restore of this worktree; repeat it to go further back',
);

export const redo = stepCommand('redo', 'redo what was undone last; repeat it to go further forward');
