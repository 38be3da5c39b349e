export { linkHostImage, sharedHostRootfs } from './shared-host-image.ts';
export { tinyImage } from './tiny-image.ts';
