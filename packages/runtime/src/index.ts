// Images
export { buildHostRootfs, hostRootfsVersion } from './images/host-rootfs.ts';
export type { BuildOptions, Image, ImageProgress, ImageSource } from './images/image.ts';
export { ImageStore } from './images/image-store.ts';
export { type Manifest, readManifest } from './images/manifest.ts';
