import { workDirectory } from '@coppice/protocol';
import type { HostMount } from '@coppice/runtime';

/** A directory of the host as drivers take it. */
export const mountAt = (hostPath: string, guestPath = workDirectory, readOnly = false): HostMount => ({
  hostPath,
  guestPath,
  readOnly,
});
