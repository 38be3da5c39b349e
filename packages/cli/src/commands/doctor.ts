import type { Doctor } from '@coppice/protocol';
import type { Cli } from '../cli.ts';
import { localFindings } from '../daemon/local-findings.ts';
import { findRunningDaemon } from '../daemon/running-daemon.ts';
import { type DefineCommand, verb } from '../verb.ts';

/** Apart from those of errors, which say that the question could not be asked. */
const exitCodes = { healthy: 0, errors: 1, warnings: 20 } as const;

const verdictOf = ({ healthy, findings }: Doctor): keyof typeof exitCodes => {
  if (!healthy) return 'errors';
  return findings.some(({ severity }) => severity === 'warning') ? 'warnings' : 'healthy';
};

const withoutDaemon = (cli: Cli): Doctor => ({
  healthy: false,
  engine: 'unknown',
  driver: 'unknown',
  drivers: {},
  findings: [
    {
      severity: 'error',
      check: 'daemon',
      message: `the daemon of ${cli.home} is not running`,
      fix: 'Start it: coppice up --detach',
    },
    ...localFindings(cli.io.env),
  ],
});

const isRemote = (cli: Cli): boolean => Boolean(cli.io.env.COPPICE_URL);

const verdicts = {
  healthy: (cli: Cli) => cli.out.paint('green', 'healthy'),
  warnings: (cli: Cli) => cli.out.paint('yellow', 'healthy, with warnings'),
  errors: (cli: Cli) => cli.out.paint('red', 'not healthy'),
};

const text = (cli: Cli, doctor: Doctor): string => {
  const styles = { error: 'red', warning: 'yellow', info: 'dim' } as const;
  const drivers = Object.entries(doctor.drivers).map(
    ([name, { usable, detail }]) => `  ${usable ? '✓' : '✗'} ${name}: ${detail}`,
  );
  const findings = doctor.findings.flatMap(({ severity, check, message, fix }) => [
    `${cli.out.paint(styles[severity], severity)}  ${check}: ${message}`,
    ...(fix === '' ? [] : [`  fix: ${fix}`]),
  ]);
  return [
    verdicts[verdictOf(doctor)](cli),
    `engine  ${doctor.engine}`,
    `driver  ${doctor.driver}`,
    ...drivers,
    ...findings,
  ].join('\n');
};

export const define: DefineCommand = (program, cli) => {
  const about = 'Say what is wrong with this machine and how to mend it; the exit code says it too';
  const command = verb(program, 'doctor', about).addHelpText(
    'after',
    '\nExit code: 0 nothing is wrong; 1 something is, which keeps it from working; 20 warnings only.',
  );
  command.action(async () => {
    const reachable = isRemote(cli) || (await findRunningDaemon(cli.home)) !== undefined;
    cli.signal.throwIfAborted();
    const doctor = reachable ? await cli.coppice.doctor({ signal: cli.signal }) : withoutDaemon(cli);
    cli.exitCode = exitCodes[verdictOf(doctor)];
    cli.out.result(doctor, () => text(cli, doctor));
  });
};
