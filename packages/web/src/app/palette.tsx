import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { actionsOf, ask, create } from './actions.tsx';
import { navigation } from './features.ts';
import { paletteOpen, takeTyped } from './keys.ts';
import { go } from './router.ts';
import { mayChange, onlySandbox } from './session.ts';
import { hrefOf, refOf, sandboxes } from './store.ts';
import { Dialog } from './ui.tsx';

interface Entry {
  readonly title: string;
  readonly kind: string;
  readonly run: () => void;
}

const entries = (): Entry[] => [
  ...navigation().map(({ title, path }) => ({ title, kind: 'page', run: () => go(path) })),
  ...(onlySandbox() === undefined && mayChange()
    ? [{ title: 'New sandbox', kind: 'action', run: () => ask(create([])) }]
    : []),
  ...sandboxes.value.map((sandbox) => ({
    title: refOf(sandbox),
    kind: sandbox.state,
    run: () => go(hrefOf(sandbox.id)),
  })),
  ...sandboxes.value.flatMap((sandbox) =>
    actionsOf(sandbox).map(({ title, action }) => ({
      title: `${title} ${refOf(sandbox)}`,
      kind: 'action',
      run: () => ask(action),
    })),
  ),
];

const most = 12;

/** Each word of what was typed is somewhere in the title; titles that begin with it come first. */
const matches = (typed: string): Entry[] => {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const found: [number, Entry][] = [];
  for (const entry of entries()) {
    const title = entry.title.toLowerCase();
    if (!words.every((word) => title.includes(word) || entry.kind.includes(word))) continue;
    found.push([title.startsWith(words[0] ?? '') ? 0 : 1, entry]);
  }
  return found
    .sort(([a], [b]) => a - b)
    .slice(0, most)
    .map(([, entry]) => entry);
};

const Inner = () => {
  const typed = useSignal('');
  const at = useSignal(0);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);
  const found = matches(typed.value);
  const choose = (entry: Entry | undefined): void => {
    if (entry === undefined) return;
    paletteOpen.value = false;
    entry.run();
  };
  return (
    <div class="palette">
      <input
        ref={input}
        type="text"
        role="combobox"
        aria-label="Find or do"
        aria-expanded="true"
        aria-controls="found"
        aria-activedescendant={found.length > 0 ? `found-${at.value}` : undefined}
        placeholder="Find a sandbox, or do something"
        autocomplete="off"
        spellcheck={false}
        onFocus={(event) => {
          const { text, isEntered } = takeTyped();
          event.currentTarget.value += text;
          typed.value = event.currentTarget.value;
          if (isEntered) choose(matches(typed.value)[0]);
        }}
        onInput={(event) => {
          typed.value = event.currentTarget.value;
          at.value = 0;
        }}
        onKeyDown={(event) => {
          const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
          if (step !== 0) {
            event.preventDefault();
            at.value = Math.max(0, Math.min(found.length - 1, at.value + step));
          }
          if (event.key === 'Enter') choose(found[at.value]);
        }}
      />
      <div id="found" role="listbox" aria-label="What was found">
        {found.map((entry, index) => (
          <div
            key={`${entry.kind} ${entry.title}`}
            id={`found-${index}`}
            role="option"
            aria-selected={index === at.value}
            onClick={() => choose(entry)}
          >
            <span>{entry.title}</span>
            <small>{entry.kind}</small>
          </div>
        ))}
      </div>
      {found.length === 0 && <p class="muted">Nothing is called that.</p>}
    </div>
  );
};

export const Palette = () =>
  paletteOpen.value ? (
    <Dialog
      title="Find or do"
      className="top"
      onClose={() => {
        paletteOpen.value = false;
      }}
    >
      <Inner />
    </Dialog>
  ) : null;
