import { formatCommand, printable } from '@coppice/console';

const levels: Readonly<Record<number, string>> = { 40: 'warning: ', 50: 'error: ', 60: 'fatal: ' };
const shownElsewhere = new Set(['level', 'time', 'pid', 'msg', 'hostname']);

/** A line of the daemon's log, which is JSON, for people. */
export const logLine = (line: string): string => {
  let entry: unknown;
  try {
    entry = JSON.parse(line);
  } catch {
    // The daemon also says plain sentences, for example why it cannot start.
    return printable(line);
  }
  if (typeof entry !== 'object' || entry === null) return printable(line);
  const { level, time, msg, ...rest } = entry as { level?: number; time?: number; msg?: string };
  const at = time === undefined ? '' : `${new Date(time).toISOString().slice(11, 19)}  `;
  const facts = Object.entries(rest)
    .filter(([key]) => !shownElsewhere.has(key))
    .map(
      ([key, value]) =>
        ` ${key}=${formatCommand([typeof value === 'string' ? value : JSON.stringify(value)])}`,
    );
  return printable(`${at}${levels[level ?? 30] ?? ''}${msg ?? ''}${facts.join('')}`);
};
