import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

export interface Key {
  readonly title: string;
  readonly run: () => void;
}
export type Keys = Readonly<Record<string, Key>>;

/** The ones of the page that is shown come after those that hold everywhere. */
const layers = signal<readonly Keys[]>([]);

export const allKeys = (): [string, Key][] => layers.value.flatMap((keys) => Object.entries(keys));

/** While a component is there, these keys do what it says. */
export const useKeys = (keys: Keys, deps: readonly unknown[]): void =>
  useEffect(() => {
    layers.value = [...layers.value, keys];
    return () => {
      layers.value = layers.value.filter((layer) => layer !== keys);
    };
  }, deps);

/** Whether the palette is asked for. Its code comes when it is. */
export const paletteOpen = signal(false);

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof Element &&
  target.closest('input, textarea, select, [contenteditable], .xterm, dialog') !== null;

/** What is typed between the key that opens a field and the moment that the field has the focus; undefined otherwise. */
let ahead: Ahead | undefined;

interface Ahead {
  readonly text: string;
  /** Enter came after the text; what came after Enter is dropped. */
  readonly isEntered: boolean;
}

const nothing: Ahead = { text: '', isEntered: false };

export const typeAhead = (): void => {
  ahead = nothing;
};

export const takeTyped = (): Ahead => {
  const typed = ahead ?? nothing;
  ahead = undefined;
  return typed;
};

document.addEventListener('keydown', (event) => {
  if (ahead !== undefined) {
    const { text, isEntered } = ahead;
    if (event.key === 'Enter') ahead = { text, isEntered: true };
    else if (event.key.length === 1 && !event.ctrlKey && !event.metaKey && !isEntered)
      ahead = { text: text + event.key, isEntered };
    event.preventDefault();
    return;
  }
  const isPalette = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k';
  const name = isPalette ? 'Ctrl K' : event.key;
  if (!isPalette && (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target))) return;
  const found = layers.value.findLast((keys) => Object.hasOwn(keys, name))?.[name];
  if (found === undefined) return;
  // Enter on a link or a button stays what it is.
  if (name === 'Enter' && event.target instanceof Element && event.target.closest('a, button') !== null)
    return;
  event.preventDefault();
  found.run();
});
