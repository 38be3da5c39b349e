import type { DefineCommand } from '../verb.ts';

type Load = () => Promise<{ readonly define: DefineCommand }>;

/** Every command with the module that defines it: a call loads only its own. In the order of the help. */
export const commands = {
  up: () => import('./up.ts'),
  down: () => import('./down.ts'),
  status: () => import('./status.ts'),
  doctor: () => import('./doctor.ts'),
  demo: () => import('./demo.ts'),
  create: () => import('./create.ts'),
  ls: () => import('./ls.ts'),
  info: () => import('./info.ts'),
  start: () => import('./start.ts'),
  stop: () => import('./stop.ts'),
  pause: () => import('./pause.ts'),
  resume: () => import('./resume.ts'),
  rm: () => import('./rm.ts'),
  exec: () => import('./exec.ts'),
  run: () => import('./run.ts'),
  shell: () => import('./shell.ts'),
  jobs: () => import('./jobs.ts'),
  logs: () => import('./logs.ts'),
  cp: () => import('./cp.ts'),
  edit: () => import('./edit.ts'),
  snapshot: () => import('./snapshot.ts'),
  checkpoint: () => import('./checkpoint.ts'),
  snapshots: () => import('./snapshots.ts'),
  restore: () => import('./restore.ts'),
  fork: () => import('./fork.ts'),
  diff: () => import('./diff.ts'),
  merge: () => import('./merge.ts'),
  tree: () => import('./tree.ts'),
  export: () => import('./export.ts'),
  import: () => import('./import.ts'),
  port: () => import('./port.ts'),
  net: () => import('./net.ts'),
  images: () => import('./images.ts'),
  events: () => import('./events.ts'),
  token: () => import('./token.ts'),
  mcp: () => import('../mcp/command.ts'),
  workspace: () => import('./workspace.ts'),
  completion: () => import('./completion.ts'),
} as const satisfies Record<string, Load>;

export type CommandName = keyof typeof commands;

export const isCommandName = (text: string | undefined): text is CommandName =>
  text !== undefined && Object.hasOwn(commands, text);
