import { CoppiceError } from '@coppice/protocol';

const pattern = /^[a-z0-9][a-z0-9._-]{0,62}(:[a-z0-9][a-z0-9._-]{0,62})?$/;
const idPattern = /^img_[0-9a-hjkmnp-tv-z]{26}$/;

/** Names are typed by people and stand in paths of messages, never in paths of files. */
export function checkImageName(name: string): void {
  if (pattern.test(name) && !idPattern.test(name)) return;
  throw new CoppiceError(
    'invalid_argument',
    `${JSON.stringify(name.slice(0, 80))} is not a name for an image`,
    {
      hint: 'Use up to 63 lower-case letters, digits, `.`, `_` or `-`, and a tag after `:` if you like: node:24-slim.',
    },
  );
}

/** What Coppice builds by itself under these names; nothing else may take them. */
export function checkImportName(name: string): void {
  checkImageName(name);
  if (name !== 'host' && !name.startsWith('debian:')) return;
  throw new CoppiceError(
    'invalid_argument',
    `the image name ${name} is kept for the image that Coppice makes itself`,
    {
      hint: 'Choose another name for the imported image.',
    },
  );
}
