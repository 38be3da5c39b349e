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
  'take back the last restore of this worktree; again: the one before it',
);

export const redo = stepCommand('redo', 'take back the last undo; again: the one before it');
