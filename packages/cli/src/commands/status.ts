import { formatDuration } from '@coppice/console';
import { errorKinds } from '@coppice/protocol/errors';
import { findRunningDaemon } from '../daemon/running-daemon.ts';
import { versionAdvice } from '../daemon/version-advice.ts';
import { type DefineCommand, verb } from '../verb.ts';
import { version } from '../version.ts';

export const define: DefineCommand = (program, cli) => {
  verb(program, 'status', 'Show whether the daemon runs; the exit code tells too').action(async () => {
    const running = await findRunningDaemon(cli.home);
    if (running === undefined) {
      cli.exitCode = errorKinds.unavailable.exitCode;
      cli.out.result(
        { running: false, home: cli.home },
        () => `The daemon of ${cli.home} is not running. Start it with \`coppice up --detach\`.`,
      );
      return;
    }
    const { pid, url, socket, health } = running;
    for (const advice of versionAdvice(health.version, version)) cli.out.note(advice);
    cli.out.result({ running: true, home: cli.home, pid, url, socket, ...health }, () =>
      cli.out.facts([
        ['daemon', `running, ${health.status}`],
        ['version', health.version],
        ['address', url],
        ['socket', socket ?? 'none'],
        ['process', String(pid)],
        ['up for', formatDuration(health.uptime_s)],
        ['sandboxes', String(health.sandboxes)],
        ['home', cli.home],
      ]),
    );
  });
};
