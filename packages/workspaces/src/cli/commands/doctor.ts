import { errorKinds } from '@coppice/protocol/errors';
import type { JvsCommand } from '../command.ts';

export const doctor: JvsCommand = {
  name: 'doctor',
  usage: '[--strict] [--repair]',
  summary: 'check the workspace, and show which engine it uses',
  options: [
    { name: 'strict', kind: 'flag', help: 'recompute every hash: the log, and all that is stored' },
    {
      name: 'repair',
      kind: 'flag',
      help: 'rebuild a damaged log, finish what was cut off, bring back lost directories, free what nothing needs',
    },
  ],
  least: 0,
  most: 0,
  async run(context) {
    const workspace = await context.openDamaged();
    const found = await workspace.doctor({
      strict: context.args.has('strict'),
      repair: context.args.has('repair'),
    });
    context.answer(found, () => [
      `${found.healthy ? 'healthy' : 'NOT healthy'}; engine ${found.engine} on ${found.filesystem}`,
      ...found.repaired.map((what) => `repaired: ${what}`),
      ...found.findings.flatMap(({ severity, description, fix }) => [
        `${severity}: ${description}`,
        `  ${fix}`,
      ]),
    ]);
    return found.healthy ? 0 : errorKinds.corrupt.exitCode;
  },
};
