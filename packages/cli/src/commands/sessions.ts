import { type DefineCommand, verb } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  const sessions = verb(program, 'sessions', 'List agent sessions, and transfer sandboxes to them');
  verb(sessions, 'ls', 'List sessions and what they own').action(async () => {
    const found = await cli.coppice.sessions.list({ signal: cli.signal });
    const rows = found.map(({ name, live, sandboxes, limit }) => [
      name,
      live ? 'at work' : 'idle',
      `${sandboxes.length} of ${limit}`,
      sandboxes.map((sandbox) => sandbox.name).join(', '),
    ]);
    cli.out.result(found, () =>
      cli.out.table(['SESSION', 'STATE', 'HAS', 'SANDBOXES'], rows, 'No sessions.'),
    );
  });
  verb(sessions, 'adopt', 'Transfer a sandbox to a session')
    .argument('<session>', 'name of the session')
    .argument('<sandbox>', 'name or id')
    .option('-f, --force', 'also from a session that is at work')
    .action(async (session: string, ref: string, { force = false }: { readonly force?: boolean }) => {
      const result = await cli.coppice.sessions.adopt(ref, session, { force, signal: cli.signal });
      cli.out.result(result, () =>
        result.adopted
          ? `${result.sandbox.name} now belongs to ${session}`
          : `${result.sandbox.name} belongs to ${session} already`,
      );
    });
};
