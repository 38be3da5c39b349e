import { parentPort, workerData } from 'node:worker_threads';
import { createTwoFilesPatch, formatPatch } from 'diff';
import type { TextPair } from './text-differ.ts';

const contextLines = 3;

/** With their line ends; a last one without it stays without it. */
const linesOf = (text: string): string[] => text.match(/[^\n]*\n|[^\n]+$/g) ?? [];

const hunkLines = (sign: string, lines: readonly string[]): string[] =>
  lines.flatMap((line) =>
    line.endsWith('\n') ? [sign + line.slice(0, -1)] : [sign + line, '\\ No newline at end of file'],
  );

/** One hunk for all between the first and the last line that differ: true, and as quick as reading. */
function coarseDiff({ before, after, beforeName, afterName }: TextPair): string {
  const [old, now] = [linesOf(before), linesOf(after)];
  const shorter = Math.min(old.length, now.length);
  let head = 0;
  while (head < shorter && old[head] === now[head]) head += 1;
  let tail = 0;
  while (tail < shorter - head && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail += 1;
  const start = Math.max(0, head - contextLines);
  const below = Math.min(tail, contextLines);
  const [oldEnd, newEnd] = [old.length - tail, now.length - tail];
  const hunk = {
    oldStart: start + 1,
    oldLines: oldEnd + below - start,
    newStart: start + 1,
    newLines: newEnd + below - start,
    lines: [
      ...hunkLines(' ', old.slice(start, head)),
      ...hunkLines('-', old.slice(head, oldEnd)),
      ...hunkLines('+', now.slice(head, newEnd)),
      ...hunkLines(' ', old.slice(oldEnd, oldEnd + below)),
    ],
  };
  return formatPatch({
    oldFileName: beforeName,
    newFileName: afterName,
    oldHeader: '',
    newHeader: '',
    hunks: [hunk],
  });
}

function exactDiff({ before, after, beforeName, afterName, searchMs }: TextPair): string | undefined {
  const options = { context: contextLines, timeout: searchMs };
  return createTwoFilesPatch(beforeName, afterName, before, after, '', '', options);
}

const pair = workerData as TextPair;
parentPort?.postMessage((pair.searchMs > 0 ? exactDiff(pair) : undefined) ?? coarseDiff(pair));
