import {
  closeSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
  readSync,
  writeSync,
} from 'node:fs';
import { userInfo } from 'node:os';
import { CoppiceError } from '@coppice/protocol/errors';
import { sha256 } from './sha256.ts';
import type { WorkspaceEvent } from './workspace-event.ts';

export type LogLine = WorkspaceEvent & {
  readonly seq: number;
  readonly at: string;
  readonly by: string;
  readonly prev: string;
  readonly hash: string;
};

/** How far a log has been read. Lines are only ever added, so that the rest can be read later. */
export interface LogPosition {
  readonly bytes: number;
  readonly lines: number;
}

const logStart: LogPosition = { bytes: 0, lines: 0 };
const firstHash = '0'.repeat(64);
const newline = 10;

/** What the hash of a line covers. */
const hashed = (line: Omit<LogLine, 'hash'>): string =>
  JSON.stringify([line.seq, line.at, line.by, line.type, line.data, line.prev]);

const userName = (): string => {
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? 'unknown'}`;
  }
};

export interface LogProblem {
  readonly line: number;
  readonly problem: string;
}

/**
 * Everything that ever happened to a workspace, one JSON line each, each with the hash of the one before it. A line is
 * the moment at which a change becomes true: what is not in here did not happen.
 */
export class EventLog {
  readonly #path: string;

  constructor(path: string) {
    this.#path = path;
  }

  /** From where an earlier reading ended, or from the beginning. */
  read(from: LogPosition = logStart): { lines: LogLine[]; end: LogPosition } {
    const bytes = this.#bytesFrom(from.bytes);
    const lines: LogLine[] = [];
    // After the last newline stands nothing, or a line whose writer died: that one did not happen.
    const end = bytes.lastIndexOf(newline) + 1;
    if (end === 0) return { lines, end: from };
    for (const line of bytes.toString('utf8', 0, end - 1).split('\n')) {
      try {
        lines.push(JSON.parse(line) as LogLine);
      } catch (cause) {
        const number = from.lines + lines.length + 1;
        throw new CoppiceError('corrupt', `line ${number} of the workspace's log cannot be read`, {
          hint: `Run \`jvs doctor --strict\`; the log is ${this.#path}.`,
          cause,
        });
      }
    }
    return { lines, end: { bytes: from.bytes + end, lines: from.lines + lines.length } };
  }

  #bytesFrom(start: number): Buffer {
    const file = openSync(this.#path, 'r');
    try {
      const bytes = Buffer.alloc(Math.max(0, fstatSync(file).size - start));
      let length = 0;
      for (let got = -1; got !== 0 && length < bytes.length; length += got)
        got = readSync(file, bytes, length, bytes.length - length, start + length);
      return bytes.subarray(0, length);
    } finally {
      closeSync(file);
    }
  }

  /** The caller holds the lock of the log. What is not `durable` may be lost with the power, and nothing else. */
  append(events: readonly WorkspaceEvent[], durable = true): LogLine[] {
    const file = openSync(this.#path, 'r+');
    try {
      const { last, end } = this.#tail(file);
      if (end < fstatSync(file).size) ftruncateSync(file, end);
      const added: LogLine[] = [];
      let seq = last?.seq ?? 0;
      let prev = last?.hash ?? firstHash;
      for (const event of events) {
        seq += 1;
        const line = { seq, at: new Date().toISOString(), by: userName(), ...event, prev };
        const whole = { ...line, hash: sha256(hashed(line)) } as LogLine;
        prev = whole.hash;
        added.push(whole);
      }
      const bytes = Buffer.from(added.map((line) => `${JSON.stringify(line)}\n`).join(''));
      for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at, bytes.length - at, end + at);
      if (durable) fsyncSync(file);
      return added;
    } finally {
      closeSync(file);
    }
  }

  #tail(file: number): { last: LogLine | undefined; end: number } {
    const { size } = fstatSync(file);
    for (let span = 16 * 1024; ; span *= 8) {
      const from = Math.max(0, size - span);
      const bytes = Buffer.alloc(size - from);
      readSync(file, bytes, 0, bytes.length, from);
      const end = bytes.lastIndexOf(newline);
      if (end < 0 && from === 0) return { last: undefined, end: 0 };
      const start = bytes.lastIndexOf(newline, end - 1);
      if (start < 0 && from > 0) continue;
      const text = bytes.toString('utf8', start + 1, end);
      try {
        return { last: JSON.parse(text) as LogLine, end: from + end + 1 };
      } catch (cause) {
        throw new CoppiceError('corrupt', "the last line of the workspace's log cannot be read", { cause });
      }
    }
  }

  /** Recomputes every hash. */
  problems(): LogProblem[] {
    const { createHash } = process.getBuiltinModule('node:crypto');
    const found: LogProblem[] = [];
    const text = readFileSync(this.#path, 'utf8');
    let prev = firstHash;
    const lines = text.split('\n');
    if (lines.pop() !== '') found.push({ line: lines.length + 1, problem: 'is cut short' });
    lines.forEach((textLine, index) => {
      try {
        const line = JSON.parse(textLine) as LogLine;
        if (line.prev !== prev)
          found.push({ line: index + 1, problem: 'does not follow the line before it' });
        if (line.seq !== index + 1) found.push({ line: index + 1, problem: 'has the wrong number' });
        const { hash, ...rest } = line;
        const computed = createHash('sha256')
          .update(hashed(rest as Omit<LogLine, 'hash'>))
          .digest('hex');
        if (computed !== hash) {
          found.push({ line: index + 1, problem: 'does not match its hash: it was edited' });
        }
        prev = hash;
      } catch {
        found.push({ line: index + 1, problem: 'cannot be read' });
      }
    });
    return found;
  }
}
