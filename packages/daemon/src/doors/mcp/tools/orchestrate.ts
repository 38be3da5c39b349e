import type { Tool } from '../tool.ts';
import { prepare } from './prepare.ts';
import { swarmRun } from './swarm.ts';

export const orchestrateTools: readonly Tool[] = [prepare, swarmRun];
