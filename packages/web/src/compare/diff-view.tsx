import type { Change, RouteResult } from '@coppice/protocol';
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { client, noticeSignOut } from '../app/session.ts';
import { bytes, count, plain } from '../app/text.ts';
import { Failure } from '../app/ui.tsx';
import type { Piece } from './colours.ts';
import { type Hunk, hunksOf, type Line, pairsOf } from './patch.ts';

type FileDiff = RouteResult<'diffFile'>;
type Colours = ReadonlyMap<Line, readonly Piece[]>;

/** Lines that are in the document at first; the rest comes when it is asked for. */
const firstLines = 1_500;

/** More of a diff than this nobody reads in a browser: it is neither sent nor drawn. */
const mostBytes = 512 * 1024;

const sizesOf = ({ size_before, size_after }: Change): string =>
  size_before === null
    ? `It has ${bytes(size_after)}.`
    : size_after === null
      ? `It had ${bytes(size_before)}.`
      : `It had ${bytes(size_before)} before and has ${bytes(size_after)} after.`;

const Text = ({ line, colours }: { line: Line; colours: Colours }) => {
  const pieces = colours.get(line);
  if (pieces === undefined) return <>{plain(line.text)}</>;
  return (
    <>
      {pieces.map(({ scope, text }, index) => (
        <span key={index} class={scope === '' ? undefined : `hl-${scope.split('.')[0]}`}>
          {plain(text)}
        </span>
      ))}
    </>
  );
};

const sign = { same: ' ', added: '+', removed: '−' } as const;

const Unified = ({ hunk, colours }: { hunk: Hunk; colours: Colours }) => (
  <>
    {hunk.lines.map((line) => (
      <tr key={`${line.before} ${line.after}`} class={line.kind}>
        <td class="line">{line.before}</td>
        <td class="line">{line.after}</td>
        <td class="sign">{sign[line.kind]}</td>
        <td class="code">
          <Text line={line} colours={colours} />
        </td>
      </tr>
    ))}
  </>
);

const Side = ({
  line,
  side,
  colours,
}: {
  line: Line | undefined;
  side: 'before' | 'after';
  colours: Colours;
}) => (
  <>
    <td class="line">{line?.[side]}</td>
    <td class={`code ${line === undefined ? 'none' : line.kind}`}>
      {line !== undefined && <Text line={line} colours={colours} />}
    </td>
  </>
);

const Split = ({ hunk, colours }: { hunk: Hunk; colours: Colours }) => (
  <>
    {pairsOf(hunk.lines).map(([left, right]) => (
      <tr key={`${left?.before} ${right?.after}`}>
        <Side line={left} side="before" colours={colours} />
        <Side line={right} side="after" colours={colours} />
      </tr>
    ))}
  </>
);

/** The side of before and the side of after are read as two texts, each in its own language state. */
const colourHunks = async (path: string, hunks: readonly Hunk[]): Promise<Colours> => {
  const { colour } = await import('./colours.ts');
  const found = new Map<Line, readonly Piece[]>();
  for (const { lines } of hunks)
    for (const side of ['removed', 'added'] as const) {
      const own = lines.filter(({ kind }) => kind === 'same' || kind === side);
      const coloured = colour(
        path,
        own.map(({ text }) => text),
      );
      own.forEach((line, index) => {
        const pieces = coloured?.[index];
        if (pieces !== undefined) found.set(line, pieces);
      });
    }
  return found;
};

export const DiffView = ({
  from,
  to,
  path,
  isSplit,
  label,
  change,
}: {
  from: string;
  to: string;
  path: string;
  isSplit: boolean;
  label?: string;
  /** As the list of changes has it, where there is one. */
  change?: Change | undefined;
}) => {
  const diff = useSignal<FileDiff | undefined>(undefined);
  const hunks = useSignal<readonly Hunk[]>([]);
  const colours = useSignal<Colours>(new Map());
  const failure = useSignal<unknown>(undefined);
  const isWhole = useSignal(false);
  useEffect(() => {
    const abort = new AbortController();
    diff.value = undefined;
    failure.value = undefined;
    isWhole.value = false;
    client()
      .diffFile(from, to, path, { max_bytes: mostBytes, signal: abort.signal })
      .then(async (found) => {
        diff.value = found;
        hunks.value = hunksOf(found.unified);
        colours.value = new Map();
        colours.value = await colourHunks(path, hunks.value);
      })
      .catch((error: unknown) => {
        if (abort.signal.aborted) return;
        noticeSignOut(error);
        failure.value = error;
      });
    return () => abort.abort();
  }, [from, to, path]);
  const found = diff.value;
  const sizes = change === undefined ? '' : ` ${sizesOf(change)}`;
  const total = hunks.value.reduce((sum, { lines }) => sum + lines.length, 0);
  let room = isWhole.value ? Number.POSITIVE_INFINITY : firstLines;
  const shown = hunks.value.flatMap((hunk) => {
    if (room <= 0) return [];
    const lines = hunk.lines.slice(0, room);
    room -= lines.length;
    return [{ ...hunk, lines }];
  });
  return (
    <section class="diff" aria-label={label ?? plain(path)}>
      <h2 class="mono">{plain(label ?? path)}</h2>
      <Failure error={failure.value} />
      {found?.directory && <p class="muted">A directory. What differs below it is in the list.</p>}
      {found?.binary && (
        <p class="muted">It is not text.{sizes} Download it from both sides to compare it.</p>
      )}
      {found !== undefined && !found.binary && !found.directory && total === 0 && (
        <p class="muted">
          {found.truncated
            ? `It is too large to compare here.${sizes} Download it from both sides to compare it.`
            : found.unified === ''
              ? 'It is the same on both sides.'
              : 'Its content is the same; its mode or owner differs.'}
        </p>
      )}
      {total > 0 && (
        <div class="hunks" role="region" aria-label="Changes" tabIndex={0}>
          <table class={isSplit ? 'sides' : 'unified'}>
            <colgroup>
              {(isSplit ? ['line', '', 'line', ''] : ['line', 'line', 'sign', '']).map((width, index) => (
                <col key={`${index} ${width}`} class={width} />
              ))}
            </colgroup>
            {shown.map((hunk) => (
              <tbody key={hunk.title}>
                <tr class="hunk">
                  <td colSpan={4}>{hunk.title}</td>
                </tr>
                {isSplit ? (
                  <Split hunk={hunk} colours={colours.value} />
                ) : (
                  <Unified hunk={hunk} colours={colours.value} />
                )}
              </tbody>
            ))}
          </table>
        </div>
      )}
      {!isWhole.value && total > firstLines && (
        <button
          type="button"
          onClick={() => {
            isWhole.value = true;
          }}
        >
          Show {count(total - firstLines, 'more line')}
        </button>
      )}
      {found?.truncated && total > 0 && (
        <p class="muted">This is the beginning of what differs. The command below shows all of it.{sizes}</p>
      )}
    </section>
  );
};
