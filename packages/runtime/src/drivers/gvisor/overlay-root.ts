import { CoppiceError } from '@coppice/protocol';
import type { ImageRoot } from '../../driver.ts';

/** The kernel reads no more of the options of a mount. */
const maxOptionsBytes = 4095;

/**
 * The disk over the image, as options of a mount that is made from the image's own directory. `userxattr` writes the same
 * marks into the upper layer as the container driver does, so that a disk may change drivers.
 */
export const overlayLayers = (image: ImageRoot, shimDir: string, diskDir: string): string => {
  const lowers = [...image.layers, shimDir];
  // These characters have a meaning in the options of the mount; our own paths are made without them.
  for (const path of [...lowers, diskDir]) {
    if (/[,:\\]/.test(path)) {
      throw new CoppiceError('invalid_argument', `the path ${path} holds a comma, a colon or a backslash`, {
        hint: 'Choose a COPPICE_HOME without these characters.',
      });
    }
  }
  const options = `userxattr,lowerdir=${lowers.join(':')},upperdir=${diskDir}/upper,workdir=${diskDir}/work`;
  if (Buffer.byteLength(options) <= maxOptionsBytes) return options;
  throw new CoppiceError(
    'unsupported',
    `the image has more layers (${image.layers.length}) than can be mounted here`,
    {
      hint: 'Use an image with fewer layers, or a COPPICE_HOME with a shorter path.',
    },
  );
};
