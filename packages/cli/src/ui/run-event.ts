import { printableName } from '@coppice/console';
import type { EventBody, RunEvent } from '@coppice/protocol';

const widest = 400;

const isBody = (value: unknown): value is EventBody =>
  typeof value === 'object' && value !== null && 'text' in value && 'bytes' in value;

const valueText = (value: unknown): string => {
  if (isBody(value)) return value.text.trim();
  return typeof value === 'string' ? value : JSON.stringify(value);
};

/** One line for people: what happened, and the most telling part of it. */
export const eventLine = (event: RunEvent): string => {
  const parts = Object.entries(event.data)
    .filter(([, value]) => value !== null && value !== '')
    .map(([key, value]) =>
      isBody(value) || ['message', 'reason', 'title'].includes(key)
        ? valueText(value)
        : `${key}=${valueText(value)}`,
    );
  const text = printableName(parts.join('  '));
  return `${String(event.seq).padStart(5)}  ${event.type}  ${text.length > widest ? `${text.slice(0, widest)}…` : text}`;
};
