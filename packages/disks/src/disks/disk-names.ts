import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { CoppiceError } from '@coppice/protocol';

const idPattern = /^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/;

/** Ids become directory names, so nothing else is let through. */
export const checkId = (id: string): string => {
  if (!idPattern.test(id)) {
    throw new CoppiceError('invalid_argument', `${JSON.stringify(id)} is not the id of a disk or snapshot.`);
  }
  return id;
};

/** What is being made, or waits to be removed, bears a name with a leading dot: whoever opens the store next removes it. */
export const temporaryName = (kind: 'new' | 'old', id: string): string =>
  `.${kind}.${id}.${randomBytes(6).toString('hex')}`;

export const isTemporaryName = (name: string): boolean => name.startsWith('.');

/** The id of something half made, or undefined for what is only waiting to be removed. */
export const idOfUnfinished = (name: string): string | undefined => /^\.new\.([^.]+)\./.exec(name)?.[1];

/** From a bin a helper deletes a tree; its number is the process of the helper. */
export const isAbandonedBin = (name: string): boolean => {
  const pid = /^\.bin\.(\d+)\./.exec(name)?.[1];
  return pid !== undefined && !existsSync(`/proc/${pid}`);
};
