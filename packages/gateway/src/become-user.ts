import Database from 'better-sqlite3';

/**
 * Gives up every right of root, for good. The program was loaded as root, as it may lie where nobody else may look. So its one part
 * that is loaded late is loaded now.
 */
export function becomeUser(id: number): void {
  new Database(':memory:').close();
  process.setgroups!([]);
  process.setgid!(id);
  process.setuid!(id);
  if (process.getuid!() !== id || process.geteuid!() !== id || process.getegid!() !== id)
    throw new Error('the gateway could not give up the rights of root');
}
