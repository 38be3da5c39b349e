import { type Signal, useSignal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { now } from './store.ts';
import { age, exact } from './text.ts';

/** Shape and word say the state; colour only repeats it. */
const stateWords: Readonly<Record<string, string>> = {
  running: 'running',
  paused: 'asleep',
  stopped: 'stopped',
  failed: 'failed',
  creating: 'starting',
  destroying: 'going',
};

export const State = ({ of }: { of: string }) => (
  <span class={`state ${of}`}>
    <i aria-hidden="true" />
    {stateWords[of] ?? of}
  </span>
);

export const Age = ({ at }: { at: string }) => <time title={exact(at)}>{age(at, now.value)}</time>;

export const Copy = ({ text, label = 'Copy' }: { text: string; label?: string }) => {
  const done = useSignal(false);
  return (
    <button
      type="button"
      class="quiet small"
      onClick={() => {
        void navigator.clipboard.writeText(text).then(() => {
          done.value = true;
          setTimeout(() => {
            done.value = false;
          }, 1_500);
        });
      }}
    >
      {done.value ? 'Copied' : label}
    </button>
  );
};

export const Command = ({ text }: { text: string }) => (
  <div class="command">
    <code>{text}</code>
    <Copy text={text} />
  </div>
);

export const Failure = ({ error }: { error: unknown }) => {
  if (error === undefined || error === null) return null;
  const { message, hint } = error as { message?: string; hint?: string };
  return (
    <p class="failure" role="alert">
      {message ?? String(error)} {hint !== undefined && <span class="muted">{hint}</span>}
    </p>
  );
};

/** Filters with how many each would leave; what is on stands in the address. */
export const Chips = ({
  label,
  options,
  chosen,
  choose,
}: {
  label: string;
  options: readonly { readonly value: string; readonly title: string; readonly count?: number }[];
  chosen: string;
  choose: (value: string) => void;
}) => (
  <div class="chips" role="group" aria-label={label}>
    {options.map(({ value, title, count }) => (
      <button type="button" key={value} aria-pressed={value === chosen} onClick={() => choose(value)}>
        {title}
        {count !== undefined && <b>{count.toLocaleString('en')}</b>}
      </button>
    ))}
  </div>
);

export const Search = ({ value, onInput }: { value: string; onInput: (text: string) => void }) => (
  <input
    type="search"
    aria-label="Filter"
    placeholder="Filter  /"
    value={value}
    onInput={(event) => onInput(event.currentTarget.value)}
  />
);

/** A native dialog: the browser keeps the focus in it, Escape closes it. */
export const Dialog = ({
  title,
  onClose,
  children,
  className = '',
}: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  className?: string;
}) => {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    ref.current?.showModal();
  }, []);
  return (
    <dialog
      ref={ref}
      class={className}
      aria-label={title}
      onClose={onClose}
      onClick={(event) => {
        if (event.target === ref.current) ref.current?.close();
      }}
    >
      {children}
    </dialog>
  );
};

/** Only what can be seen, and a little above and below it, is in the document. */
export const VirtualList = <T,>({
  items,
  rowHeight,
  row,
  keyOf,
  label,
  selected,
  header,
  className = '',
  style = {},
}: {
  items: readonly T[];
  rowHeight: number;
  row: (item: T, index: number) => JSX.Element;
  keyOf: (item: T) => string;
  label: string;
  selected?: Signal<number>;
  header?: JSX.Element;
  className?: string;
  style?: Readonly<Record<string, string>>;
}) => {
  const ref = useRef<HTMLDivElement>(null);
  const view = useSignal({ top: 0, height: 800 });
  useEffect(() => {
    const element = ref.current!;
    const look = (): void => {
      view.value = { top: element.scrollTop, height: element.clientHeight };
    };
    look();
    const sizes = new ResizeObserver(look);
    sizes.observe(element);
    element.addEventListener('scroll', look, { passive: true });
    return () => {
      sizes.disconnect();
      element.removeEventListener('scroll', look);
    };
  }, []);
  const at = selected?.value;
  useEffect(() => {
    const element = ref.current;
    if (at === undefined || at < 0 || element === null) return;
    const head = header === undefined ? 0 : rowHeight;
    const top = at * rowHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + rowHeight + head > element.scrollTop + element.clientHeight)
      element.scrollTop = top + rowHeight + head - element.clientHeight;
  }, [at]);
  const spare = 8;
  const first = Math.max(0, Math.floor(view.value.top / rowHeight) - spare);
  const last = Math.min(items.length, Math.ceil((view.value.top + view.value.height) / rowHeight) + spare);
  return (
    <div
      ref={ref}
      class={`list ${className}`}
      role="table"
      aria-label={label}
      aria-rowcount={items.length + (header === undefined ? 0 : 1)}
      tabIndex={0}
      style={{ '--row': `${rowHeight}px`, ...style }}
    >
      {header}
      <div class="rows" role="rowgroup" style={{ height: `${items.length * rowHeight}px` }}>
        {items.slice(first, last).map((item, index) => (
          <div
            role="row"
            aria-rowindex={first + index + (header === undefined ? 1 : 2)}
            key={keyOf(item)}
            class={`row ${at === first + index ? 'selected' : ''}`}
            style={{ top: `${(first + index) * rowHeight}px` }}
            onClick={() => {
              if (selected !== undefined) selected.value = first + index;
            }}
          >
            {row(item, first + index)}
          </div>
        ))}
      </div>
    </div>
  );
};

export const Cell = ({
  children,
  className = '',
  title,
}: {
  children?: ComponentChildren;
  className?: string;
  title?: string | undefined;
}) => (
  <div role="cell" class={className} title={title}>
    {children}
  </div>
);

export const Header = ({
  columns,
}: {
  columns: readonly (readonly [title: string, className?: string])[];
}) => (
  <div role="rowgroup" class="head">
    <div role="row" class="row">
      {columns.map(([title, className = '']) => (
        <div role="columnheader" class={className} key={title}>
          {title}
        </div>
      ))}
    </div>
  </div>
);

/** A line of the last values, the newest at the right; `most` is the top. */
export const Sparkline = ({
  values,
  most,
  label,
}: {
  values: readonly number[];
  most: number;
  label: string;
}) => {
  const width = 72;
  const height = 18;
  const step = width / 29;
  const points = values
    .slice(-30)
    .map((value, index, all) => {
      const x = width - (all.length - 1 - index) * step;
      const y = height - 1 - Math.min(1, value / most) * (height - 2);
      return `${x.toFixed(1)},${y.toFixed(1)}`;
    })
    .join(' ');
  return (
    <svg
      class="spark"
      width={width}
      height={height}
      viewBox={`0 0 ${width} ${height}`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <polyline points={points} />
    </svg>
  );
};

/** How much of a limit is used; near its end it warns, unless it is a share of something and no limit. */
export const Meter = ({
  value,
  most,
  label,
  isShare = false,
}: {
  value: number;
  most: number;
  label: string;
  isShare?: boolean;
}) => (
  <span
    class={`meter ${!isShare && value / most > 0.9 ? 'high' : ''}`}
    role="meter"
    aria-label={label}
    aria-valuemin={0}
    aria-valuemax={most}
    aria-valuenow={Math.min(value, most)}
  >
    <i style={{ width: `${Math.min(100, (value / most) * 100)}%` }} />
  </span>
);
