import { CoppiceError, formatImageReference, parseImageReference } from '@coppice/protocol';

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

/** The name of an image that is made of layers: what docker would call it, in full. */
export function checkLayeredName(text: string): string {
  checkNotKept(text);
  const reference = parseImageReference(text);
  if (reference.digest === undefined && !idPattern.test(text)) return formatImageReference(reference);
  throw new CoppiceError('invalid_argument', `${text.slice(0, 80)} is not a name to give to an image`, {
    hint: 'A name ends with a tag: team/base:1.0. The digest comes from what the image holds.',
  });
}

export function checkImportName(name: string): void {
  checkImageName(name);
  checkNotKept(name);
}

/** What Coppice builds by itself under these names; nothing else may take them. */
function checkNotKept(name: string): void {
  if (name !== 'host' && !name.startsWith('debian:')) return;
  throw new CoppiceError(
    'invalid_argument',
    `the image name ${name} is kept for the image that Coppice makes itself`,
    {
      hint: 'Choose another name for the imported image.',
    },
  );
}
