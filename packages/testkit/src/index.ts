export { type DriverTraits, describeDriver } from './driver-conformance.ts';
export {
  DriverWorkbench,
  eventually,
  type MakeDriver,
  type RunResult,
  runIn,
  shellIn,
} from './driver-workbench.ts';
export { linkHostImage, sharedHostRootfs } from './shared-host-image.ts';
export { tinyImage } from './tiny-image.ts';
