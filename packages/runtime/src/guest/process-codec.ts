import { CoppiceError } from '@coppice/protocol';
import type { BodyReader } from './body-reader.ts';
import { BodyWriter } from './body-writer.ts';
import type { ExitStatus, JobInfo, JobLog, OutputChunk, ProcessRequest, PtyInfo } from './guest.ts';
import { protocolError } from './wire.ts';

const maxTimeoutMs = 2 ** 32 - 1;

export const encodeProcess = (request: ProcessRequest, writer = new BodyWriter()): BodyWriter => {
  const timeoutMs = request.timeoutMs ?? 0;
  if (!Number.isFinite(timeoutMs) || timeoutMs < 0 || timeoutMs > maxTimeoutMs) {
    throw new CoppiceError('invalid_argument', `a timeout of ${timeoutMs} ms is out of range`);
  }
  if (request.argv.length === 0 || request.argv[0] === '') {
    throw new CoppiceError('invalid_argument', 'there is no program to run: argv is empty');
  }
  writer
    .u32(Math.ceil(timeoutMs))
    .string(request.user ?? '', 'the user')
    .string(request.cwd ?? '', 'the working directory');
  writer.u32(request.argv.length);
  for (const argument of request.argv) writer.string(argument, 'an argument');
  const variables = Object.entries(request.env ?? {});
  writer.u32(variables.length);
  for (const [name, value] of variables) {
    if (name === '' || name.includes('=')) {
      throw new CoppiceError('invalid_argument', `"${name}" is no name for an environment variable`);
    }
    writer.string(`${name}=${value}`, `the environment variable ${name}`);
  }
  return writer;
};

export const checkSignal = (signal: number): number => {
  if (Number.isInteger(signal) && signal >= 0 && signal <= 64) return signal;
  throw new CoppiceError('invalid_argument', `there is no signal ${signal}`, {
    hint: 'Use a number from 1 to 64.',
  });
};

const decodeExit = (reader: BodyReader): ExitStatus | null => {
  const state = reader.u8();
  const value = reader.u8();
  const timedOut = reader.u8() !== 0;
  if (state === 0) return null;
  if (state > 2) throw protocolError('an exit status is malformed');
  return { code: state === 1 ? value : null, signal: state === 2 ? value : null, timedOut };
};

export const decodeFinalExit = (reader: BodyReader): ExitStatus => {
  const exit = decodeExit(reader);
  if (exit === null) throw protocolError('a process ended without an exit status');
  return exit;
};

const decodeStrings = (reader: BodyReader): string[] => {
  const count = reader.u32();
  if (count > reader.remaining / 5) throw protocolError('a list is longer than its bytes');
  return Array.from({ length: count }, () => reader.string());
};

export const decodeJob = (reader: BodyReader): JobInfo => {
  const id = reader.u32();
  const pid = reader.u32();
  const startedAtMs = reader.u64();
  const keepAwake = reader.u8() !== 0;
  const exit = decodeExit(reader);
  const logBytes = reader.u64();
  const logStart = reader.u64();
  const argv = decodeStrings(reader);
  return { id, pid, argv, startedAtMs, keepAwake, running: exit === null, exit, logBytes, logStart };
};

export const decodeJobLog = (reader: BodyReader, maxBytes: number): JobLog => {
  const cursor = reader.u64();
  const droppedBytes = reader.u64();
  const exit = decodeExit(reader);
  const chunks: OutputChunk[] = [];
  let bytes = 0;
  while (reader.remaining > 0) {
    const stream = reader.u8() === 0 ? 'stdout' : 'stderr';
    const data = reader.bytes(reader.u32());
    bytes += data.length;
    if (data.length === 0 || bytes > maxBytes) throw protocolError('a log is not as long as it may be');
    chunks.push({ stream, data });
  }
  return { chunks, cursor, droppedBytes, running: exit === null, exit };
};

export const decodePty = (reader: BodyReader): PtyInfo => {
  const id = reader.u32();
  const pid = reader.u32();
  const cols = reader.u16();
  const rows = reader.u16();
  const exit = decodeExit(reader);
  const argv = decodeStrings(reader);
  return { id, pid, argv, cols, rows, running: exit === null, exit };
};

export const decodeAll = <T>(
  reader: BodyReader,
  decode: (reader: BodyReader) => T,
  limit = Number.POSITIVE_INFINITY,
): T[] => {
  const items: T[] = [];
  while (reader.remaining > 0) {
    if (items.length >= limit) throw protocolError('it lists more than was asked for');
    items.push(decode(reader));
  }
  return items;
};
