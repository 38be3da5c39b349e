import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { giveToOwner } from './atomic-file.ts';
import type { WorkspaceLayout } from './layout.ts';
import { isName } from './names.ts';

/** What a command is about to do, written down before it begins, so that the next one can finish or undo it. */
export type Intent =
  | {
      readonly operation: 'snapshot';
      readonly worktree: string;
      readonly snapshotId: string;
      readonly pack: string;
    }
  | {
      readonly operation: 'restore';
      readonly worktree: string;
      readonly snapshotId: string;
      readonly fromHash: string;
      readonly pack: string;
      readonly paths: readonly string[] | null;
    }
  | { readonly operation: 'fork'; readonly worktree: string }
  | { readonly operation: 'remove'; readonly worktree: string }
  | { readonly operation: 'rename'; readonly worktree: string; readonly to: string };

export type WrittenIntent = Intent & {
  readonly id: string;
  /** Of the command that wrote it. */
  readonly pid: number;
};

export const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
};

const isId = (value: unknown): boolean => typeof value === 'string' && /^[0-9a-z]{16}$/.test(value);
const isPaths = (value: unknown): boolean =>
  value === null || (Array.isArray(value) && value.every((path) => typeof path === 'string'));

const isIntent = (value: unknown): value is Intent & { pid: number } => {
  const intent = (value ?? {}) as Record<string, unknown>;
  if (!Number.isInteger(intent.pid) || !isName(intent.worktree)) return false;
  switch (intent.operation) {
    case 'snapshot':
      return isId(intent.snapshotId) && isId(intent.pack);
    case 'restore':
      return isId(intent.snapshotId) && isId(intent.pack) && isPaths(intent.paths);
    case 'rename':
      return isName(intent.to);
    default:
      return intent.operation === 'fork' || intent.operation === 'remove';
  }
};

const readIntent = (path: string): (Intent & { pid: number }) | undefined => {
  try {
    const found: unknown = JSON.parse(readFileSync(path, 'utf8'));
    return isIntent(found) ? found : undefined;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return undefined;
  }
};

export const listIntents = (layout: WorkspaceLayout): WrittenIntent[] =>
  readdirSync(layout.intents)
    .filter((file) => file.endsWith('.json'))
    .sort()
    .flatMap((file) => {
      const path = join(layout.intents, file);
      try {
        const intent = readIntent(path);
        if (intent) return [{ ...intent, id: file.slice(0, -'.json'.length) }];
        // Its writer died while writing: then it had not begun.
        rmSync(path, { force: true });
      } catch (error) {
        // Finished by another command meanwhile.
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      }
      return [];
    });

export const writeIntent = (layout: WorkspaceLayout, id: string, intent: Intent): void => {
  mkdirSync(layout.intents, { recursive: true });
  const path = join(layout.intents, `${id}.json`);
  writeFileSync(path, JSON.stringify({ ...intent, pid: process.pid }), { mode: 0o600 });
  giveToOwner(path);
};

export const clearIntent = (layout: WorkspaceLayout, id: string): void => {
  rmSync(join(layout.intents, `${id}.json`), { force: true });
};
