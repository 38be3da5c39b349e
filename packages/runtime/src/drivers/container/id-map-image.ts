import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { varint } from './varint.ts';

const namePattern = /^userns-\d+\.img$/;
/** Two words that say what kind of image it is; then the length of the one message in it. */
const magicBytes = 8;
const idsPerSandbox = 65_536;

export interface IdMapImage {
  /** What the file is called in the checkpoint. */
  readonly name: string;
  readonly content: Buffer;
}

/** CRIU's image of the map of ids, as it must be for a sandbox whose ids begin elsewhere on the host. */
export const idMapImage = (checkpointDir: string, firstId: number): IdMapImage => {
  const name = readdirSync(checkpointDir).find((file) => namePattern.test(file));
  if (name === undefined)
    throw new CoppiceError('internal', `the checkpoint in ${checkpointDir} has no map of ids`);
  const magic = readFileSync(join(checkpointDir, name)).subarray(0, magicBytes);
  const range = [...field(1, 0), ...field(2, firstId), ...field(3, idsPerSandbox)];
  const message = Buffer.from([...bytesField(1, range), ...bytesField(2, range)]);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(message.length);
  return { name, content: Buffer.concat([magic, length, message]) };
};

/** Protocol Buffers, as much of them as two ranges of numbers need. */
const field = (number: number, value: number): number[] => [number << 3, ...varint(value)];
const bytesField = (number: number, bytes: readonly number[]): number[] => [
  (number << 3) | 2,
  ...varint(bytes.length),
  ...bytes,
];
