import { createInterface } from 'node:readline/promises';
import type { ProjectEvaluation } from '@coppice/protocol';
import { CoppiceError } from '@coppice/protocol/errors';
import type { Cli } from '../cli.ts';
import { evaluationText } from './project-text.ts';

/** Shows what was read and asks for a yes; without a terminal nobody is asked, and `--yes` must say it. */
export const confirmPromotion = async (
  cli: Cli,
  evaluation: ProjectEvaluation,
  isConfirmed: boolean,
): Promise<void> => {
  if (isConfirmed) return;
  const hint = `Nothing was promoted. To confirm without being asked: add --yes`;
  if (!cli.io.stdin.isTTY || cli.out.isJson)
    throw new CoppiceError('invalid_argument', `the promotion of ${evaluation.project} must be confirmed`, {
      hint,
    });
  cli.io.stderr.write(`${evaluationText(cli.out, evaluation)}\n\n`);
  const dialogue = createInterface({ input: cli.io.stdin, output: cli.io.stderr });
  const answer = await dialogue.question(
    `Promote ${evaluation.promotable.length} agents to production? [y/N] `,
  );
  dialogue.close();
  if (!/^y(es)?$/i.test(answer.trim())) throw new CoppiceError('cancelled', 'not confirmed', { hint });
};
