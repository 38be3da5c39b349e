import type { CommandSpec } from './arguments.ts';
import type { JvsContext } from './jvs-context.ts';

export interface JvsCommand extends CommandSpec {
  /** Answers the exit code. */
  run(context: JvsContext): Promise<number>;
}
