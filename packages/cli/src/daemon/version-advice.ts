/** What to do where the daemon that runs is not of the version of this program; nothing where it is. */
export const versionAdvice = (daemon: string, program: string): string[] => {
  if (daemon === program) return [];
  const order = daemon.localeCompare(program, 'en', { numeric: true });
  return [
    order < 0
      ? `The daemon is ${daemon}, older than this program (${program}). To use the new one: coppice down && coppice up --detach (sandboxes go on)`
      : `The daemon is ${daemon}, newer than this program (${program}). Use the coppice that it came with.`,
  ];
};
