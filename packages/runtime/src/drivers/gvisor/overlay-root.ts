import { CoppiceError } from '@coppice/protocol';

/**
 * The disk over the image, as options of a mount. `userxattr` writes the same marks into the upper layer as the container
 * driver does, so that a disk may change drivers.
 */
export const overlayLayers = (imageDir: string, shimDir: string, diskDir: string): string => {
  // These characters have a meaning in the options of the mount; our own paths are made without them.
  for (const path of [imageDir, shimDir, diskDir]) {
    if (/[,:\\]/.test(path)) {
      throw new CoppiceError('invalid_argument', `the path ${path} holds a comma, a colon or a backslash`, {
        hint: 'Choose a COPPICE_HOME without these characters.',
      });
    }
  }
  return `userxattr,lowerdir=${imageDir}:${shimDir},upperdir=${diskDir}/upper,workdir=${diskDir}/work`;
};
