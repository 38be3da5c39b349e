import type { ProjectKillPoint } from '../journal/kill-points.ts';

/** Where the tests let this process die. */
export type MayDie = (point: ProjectKillPoint) => void;
