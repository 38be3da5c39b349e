import type { Exit } from '@coppice/protocol';
import type { Sandbox } from '@coppice/sdk';
import type { Cli } from '../cli.ts';

const said = {
  memory: { what: 'memory ran out, and a process was killed', option: '--memory' },
  processes: { what: 'it has as many processes as it may have', option: '--pids' },
  disk: { what: 'its disk is full', option: '--disk' },
} as const;

/** A line for people where a command failed for a limit of its sandbox: a bare 137 says nothing. */
export const noteRanOut = (cli: Cli, sandbox: Sandbox, { ran_out }: Exit): void => {
  if (ran_out === undefined) return;
  const { what, option } = said[ran_out];
  cli.out.note(
    `${sandbox.name}: ${what}; \`coppice info ${sandbox.name}\` shows its limits, \`coppice update ${sandbox.name} ${option} …\` raises one`,
  );
};
