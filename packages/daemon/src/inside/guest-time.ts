const earliestMs = Date.parse('0000-01-01T00:00:00.000Z');
const latestMs = Date.parse('9999-12-31T23:59:59.999Z');

/** A time that a sandbox says. Filesystems keep times that no calendar has; those are shown as the first or last there is. */
export const guestTime = (ms: number): string =>
  new Date(Math.min(Math.max(ms, earliestMs), latestMs)).toISOString();
