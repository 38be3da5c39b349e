export { linkHostImage, sharedHostRootfs } from './shared-host-image.ts';
