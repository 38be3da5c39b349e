import type { Doctor } from '@coppice/protocol';
import type { Cli } from '../cli.ts';
import { localFindings } from '../daemon/local-findings.ts';
import { findRunningDaemon } from '../daemon/running-daemon.ts';
import { type DefineCommand, verb } from '../verb.ts';

const unhealthyExitCode = 1;

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
    doctor.healthy ? cli.out.paint('green', 'healthy') : cli.out.paint('red', 'not healthy'),
    `engine  ${doctor.engine}`,
    `driver  ${doctor.driver}`,
    ...drivers,
    ...findings,
  ].join('\n');
};

export const define: DefineCommand = (program, cli) => {
  verb(program, 'doctor', 'Say what is wrong with this machine and how to mend it').action(async () => {
    const reachable = isRemote(cli) || (await findRunningDaemon(cli.home)) !== undefined;
    const doctor = reachable ? await cli.coppice.doctor({ signal: cli.signal }) : withoutDaemon(cli);
    if (!doctor.healthy) cli.exitCode = unhealthyExitCode;
    cli.out.result(doctor, () => text(cli, doctor));
  });
};
