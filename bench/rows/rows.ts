import type { Row } from '../harness/row.ts';
import { checkpoint } from './checkpoint.ts';
import { churn } from './churn.ts';
import { cold } from './cold.ts';
import { egress } from './egress.ts';
import { exec } from './exec.ts';
import { forks20 } from './forks20.ts';
import { idle200 } from './idle200.ts';
import { imageLayers, imageScattered, pull } from './images.ts';
import { mcp } from './mcp.ts';
import { memoryAgain } from './memory-again.ts';
import { memoryFork } from './memory-fork.ts';
import { memoryForks8 } from './memory-forks8.ts';
import { memorySpace } from './memory-space.ts';
import { modelCall } from './model-call.ts';
import { podman } from './podman.ts';
import { restart } from './restart.ts';
import { snapshot } from './snapshot.ts';
import { steps } from './steps.ts';
import { stream } from './stream.ts';
import { warm } from './warm.ts';

/** In the order in which they run and are shown. */
export const rows: readonly Row[] = [
  ...[exec, cold, warm, podman, snapshot, forks20, idle200, stream, churn, restart, mcp, steps],
  ...[pull, imageLayers, imageScattered, egress, modelCall],
  ...[checkpoint, memoryFork, memoryForks8, memoryAgain, memorySpace],
];
