import { CoppiceError } from '@coppice/protocol';
import type { Edit, RequestFields } from '../dialect.ts';
import type { Wanted } from '../json-scanner.ts';

/** Helpers that every dialect reads requests with. */

export const stringField = (fields: RequestFields, name: string): string | undefined => {
  const value = parsed(fields, name);
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'string') throw new CoppiceError('invalid_argument', `${name} is not a string`);
  return value;
};

export const booleanField = (fields: RequestFields, name: string): boolean => {
  const value = parsed(fields, name);
  if (value === undefined || value === null) return false;
  if (typeof value !== 'boolean')
    throw new CoppiceError('invalid_argument', `${name} is neither true nor false`);
  return value;
};

export const countField = (fields: RequestFields, name: string): number | undefined => {
  const value = parsed(fields, name);
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0)
    throw new CoppiceError('invalid_argument', `${name} is not a whole number`);
  return value;
};

/** What a dialect looks for to tell whether a request offers tools. */
export const toolsField: Wanted = { take: 'range', name: 'tools' };
export const hasTools = (fields: RequestFields): boolean => fields.get('tools')?.isEmpty === false;

const parsed = (fields: RequestFields, name: string): unknown => {
  const found = fields.get(name);
  if (found === undefined) return undefined;
  try {
    return JSON.parse(found.text);
  } catch {
    throw new CoppiceError('invalid_argument', `${name} is not JSON`);
  }
};

const modelPattern = /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$/;

export const modelName = (name: string | undefined): string => {
  if (name === undefined) throw new CoppiceError('invalid_argument', 'the request names no model');
  if (!modelPattern.test(name) || name.includes('..'))
    throw new CoppiceError('invalid_argument', 'the name of the model is not one');
  return name;
};

/** Replaces the value of a field, or puts it first into the object at `within`. */
export const setField = (
  fields: RequestFields,
  name: string,
  value: unknown,
  within: string,
  key = name,
): Edit => {
  const found = fields.get(name);
  const text = JSON.stringify(value);
  if (found !== undefined) return { start: found.start, end: found.end, text };
  const object = fields.get(within);
  if (object === undefined) throw new CoppiceError('invalid_argument', `the request has no object ${within}`);
  const at = object.start + 1;
  return { start: at, end: at, text: `${JSON.stringify(key)}:${text}${object.isEmpty === true ? '' : ','}` };
};

export const applyEdits = (body: Buffer, edits: readonly Edit[]): Buffer => {
  if (edits.length === 0) return body;
  const parts: Buffer[] = [];
  let from = 0;
  for (const edit of edits.toSorted((one, other) => one.start - other.start)) {
    parts.push(body.subarray(from, edit.start), Buffer.from(edit.text));
    from = edit.end;
  }
  parts.push(body.subarray(from));
  return Buffer.concat(parts);
};
