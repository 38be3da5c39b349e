import { readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { varint } from './varint.ts';

/** Two words that say what kind of image it is, the length of the first message, then that message: the number of the pages. */
const lengthAt = 8;
const messageAt = 12;
const numberTag = 0x08;
const ofProcess = /^pagemap-(\d+)\.img$/;
const ofShared = /^pagemap-shmem-\d+\.img$/;
/** Beyond any pid. */
const firstShared = 2 ** 30;

/**
 * Numbers the files of pages by the process that they are of. CRIU counts them up in the order in which it comes to the
 * processes, which is another one each time; checkpoints of the same process share their pages by the name of the file.
 */
export const namePagesByProcess = (checkpointDir: string): void => {
  const names = readdirSync(checkpointDir);
  const processes = names.flatMap((name) => {
    const pid = ofProcess.exec(name)?.[1];
    return pid === undefined ? [] : [{ name, number: Number(pid) }];
  });
  const shared = names
    .filter((name) => ofShared.test(name))
    .sort()
    .map((name, index) => ({ name, number: firstShared + index }));
  const moves = [...processes, ...shared].map(({ name, number }) => {
    const file = join(checkpointDir, name);
    return { from: renumber(file, number), to: number };
  });
  // In two steps: a new number may be the old one of another.
  for (const { from } of moves)
    renameSync(pagesOf(checkpointDir, from), pagesOf(checkpointDir, `old-${from}`));
  for (const { from, to } of moves)
    renameSync(pagesOf(checkpointDir, `old-${from}`), pagesOf(checkpointDir, to));
};

const pagesOf = (directory: string, number: number | string): string =>
  join(directory, `pages-${number}.img`);

/** Returns the number that it had. */
function renumber(file: string, number: number): number {
  const image = readFileSync(file);
  const messageBytes = image.readUInt32LE(lengthAt);
  const message = image.subarray(messageAt, messageAt + messageBytes);
  if (message[0] !== numberTag)
    throw new CoppiceError('internal', `${file} does not begin with the number of its pages`);
  let before = 0;
  let at = 1;
  for (let scale = 1; ; scale *= 0x80) {
    const byte = message[at++]!;
    before += (byte & 0x7f) * scale;
    if (byte < 0x80) break;
  }
  const head = Buffer.from([numberTag, ...varint(number), ...message.subarray(at)]);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(head.length);
  const rest = image.subarray(messageAt + messageBytes);
  writeFileSync(file, Buffer.concat([image.subarray(0, lengthAt), length, head, rest]));
  return before;
}
