import { CoppiceError, isErrorCode } from '@coppice/protocol/errors';

export type TreeWords = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;

/** A running coppice-tree: it does what touches files, and holds the locks for as long as it lives. */
export interface TreeProgram {
  readonly pid: number | undefined;
  /** Then its locks are gone too. */
  readonly hasEnded: boolean;
  request<Answer>(operation: string, words?: TreeWords): Promise<Answer>;
  /** Gives up all locks. The command ends when the program has: whoever comes next finds no file open and no lock held. */
  close(): void;
}

export const programIsClosed = (): CoppiceError => new CoppiceError('internal', 'coppice-tree is closed');

export const programEndedEarly = (how: string | number): CoppiceError =>
  new CoppiceError('internal', `coppice-tree ended unexpectedly (${how})`);

/** A length, and that many bytes of words that end with NUL (guest/tree/main.c). */
export const encodeTreeRequest = (operation: string, words: TreeWords): Buffer => {
  const parts = [operation];
  for (const [key, value] of Object.entries(words)) {
    if (value === undefined) continue;
    for (const item of Array.isArray(value) ? value : [value]) {
      parts.push(`${key}=${item === true ? 1 : item === false ? 0 : item}`);
    }
  }
  if (parts.some((part) => part.includes('\0'))) {
    throw new CoppiceError('invalid_argument', 'a path holds a NUL character');
  }
  const body = Buffer.from(`${parts.join('\0')}\0`);
  const head = Buffer.alloc(4);
  head.writeUInt32LE(body.length);
  return Buffer.concat([head, body]);
};

/** One line of JSON: an answer, or the failure with which the program ended. */
export const decodeTreeAnswer = (line: string): { answer: unknown } | { failure: CoppiceError } => {
  const answer = JSON.parse(line) as { error?: { code: string; message: string; touched: boolean } };
  if (!answer.error) return { answer };
  const { code, message, touched } = answer.error;
  return {
    failure: new CoppiceError(isErrorCode(code) ? code : 'internal', message, { details: { touched } }),
  };
};
