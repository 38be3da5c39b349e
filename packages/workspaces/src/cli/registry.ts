import type { JvsCommand } from './command.ts';

/** Each is loaded when it is used, so that a command starts as fast as its own code allows. */
const loaders = {
  init: async () => (await import('./commands/init.ts')).init,
  snapshot: async () => (await import('./commands/snapshot.ts')).snapshot,
  restore: async () => (await import('./commands/restore.ts')).restore,
  status: async () => (await import('./commands/status.ts')).status,
  undo: async () => (await import('./commands/undo.ts')).undo,
  redo: async () => (await import('./commands/undo.ts')).redo,
  history: async () => (await import('./commands/history.ts')).history,
  diff: async () => (await import('./commands/diff.ts')).diff,
  ls: async () => (await import('./commands/ls.ts')).ls,
  cat: async () => (await import('./commands/cat.ts')).cat,
  worktree: async () => (await import('./commands/worktree.ts')).worktree,
  verify: async () => (await import('./commands/verify.ts')).verify,
  doctor: async () => (await import('./commands/doctor.ts')).doctor,
  gc: async () => (await import('./commands/gc.ts')).gc,
  tag: async () => (await import('./commands/tag.ts')).tag,
  untag: async () => (await import('./commands/tag.ts')).untag,
  pin: async () => (await import('./commands/pin.ts')).pin,
  unpin: async () => (await import('./commands/pin.ts')).unpin,
  destroy: async () => (await import('./commands/destroy.ts')).destroy,
  info: async () => (await import('./commands/info.ts')).info,
  config: async () => (await import('./commands/config.ts')).config,
  completion: async () => (await import('./commands/completion.ts')).completion,
} as const satisfies Record<string, () => Promise<JvsCommand>>;

export type CommandName = keyof typeof loaders;

export const commandNames = Object.keys(loaders) as CommandName[];

export const findCommandName = (word: string): CommandName | undefined => {
  const full = word === 'wt' ? 'worktree' : word;
  return commandNames.find((name) => name === full);
};

export const loadCommand = (name: CommandName): Promise<JvsCommand> => loaders[name]();
