import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { WorkspaceLayout } from './layout.ts';

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

export const listIntents = (layout: WorkspaceLayout): WrittenIntent[] =>
  readdirSync(layout.intents)
    .filter((file) => file.endsWith('.json'))
    .sort()
    .flatMap((file) => {
      const id = file.slice(0, -'.json'.length);
      try {
        return [
          {
            ...(JSON.parse(readFileSync(join(layout.intents, file), 'utf8')) as Intent & { pid: number }),
            id,
          },
        ];
      } catch (error) {
        // Finished by another command meanwhile, or its writer died while writing: then it had not begun.
        if (!(error instanceof SyntaxError)) return [];
        rmSync(join(layout.intents, file), { force: true });
        return [];
      }
    });

export const writeIntent = (layout: WorkspaceLayout, id: string, intent: Intent): void => {
  mkdirSync(layout.intents, { recursive: true });
  writeFileSync(join(layout.intents, `${id}.json`), JSON.stringify({ ...intent, pid: process.pid }), {
    mode: 0o600,
  });
};

export const clearIntent = (layout: WorkspaceLayout, id: string): void => {
  rmSync(join(layout.intents, `${id}.json`), { force: true });
};
