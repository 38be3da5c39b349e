/** What the two command lines, `coppice` and `jvs`, share: how text, sizes and failures look on a terminal. */
export { asInterrupted, describeError } from './failure.ts';
export {
  formatAge,
  formatBytes,
  formatCommand,
  formatDuration,
  formatSize,
  plural,
  printable,
  printableName,
} from './format.ts';
