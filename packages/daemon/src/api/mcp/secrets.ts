import { redact } from './redact.ts';

const credentialName =
  /token|secret|passw|passphrase|credential|auth|cookie|(^|_)(key|pass|pat|apikey)($|_)/i;
/** Names where a credential is, or who asks for it; the value itself is none. */
const placeName = /(askpass|_(file|path|dir|sock|socket|host|user|username|id))$/i;
/** Shorter ones are too likely to be a part of something else. */
const shortestLength = 6;
const shortestPart = 8;

/** The characters of base64 that stand for the value and nothing else, wherever it begins in what was encoded. */
const base64Forms = (value: string): string[] =>
  [0, 1, 2].flatMap((offset) => {
    const bytes = Buffer.from(value);
    const text = Buffer.concat([Buffer.alloc(offset), bytes]).toString('base64');
    const form = text.slice(Math.ceil((offset * 8) / 6), Math.floor(((offset + bytes.length) * 8) / 6));
    return form.length < shortestPart ? [] : [form, form.replaceAll('+', '-').replaceAll('/', '_')];
  });

const urlForms = (value: string): string[] => {
  const form = encodeURIComponent(value);
  const lower = form.replace(/%[0-9A-F]{2}/g, (code) => code.toLowerCase());
  return [form, lower, form.replaceAll('%20', '+'), new URLSearchParams({ v: value }).toString().slice(2)];
};

const escaped = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
/** Programs break base64 into lines. */
const brokenIntoLines = (form: string): string => [...form].map(escaped).join('\\r?\\n?');
const starsInBase64 = (text: string): string => {
  let index = 0;
  return text.replace(/[^\r\n]/g, () => 'Kioq'[index++ % 4]!);
};

/** The credentials that a call knows of, and texts without them: as they are, for URLs, in JSON and in base64. */
export class Secrets {
  readonly #values = new Set<string>();
  #plain: RegExp | undefined;
  #encoded: RegExp | undefined;

  add(value: string): void {
    const lines = value.split(/\r?\n/).filter((line) => line.length >= 16 && !line.startsWith('-----'));
    for (const text of [value.trim(), ...lines]) if (text.length >= shortestLength) this.#values.add(text);
    this.#plain = undefined;
    this.#encoded = undefined;
  }

  /** Takes what the names call a credential, and passwords inside of URLs. */
  addEnvironment(vars: Readonly<Record<string, string | null>>): void {
    for (const [name, value] of Object.entries(vars)) {
      if (value === null) continue;
      if (redact(value) !== value && !/:\/\//.test(value)) this.add(value);
      const password = URL.parse(value)?.password ?? '';
      if (password !== '') this.add(decodeURIComponent(password));
      if (credentialName.test(name) && !placeName.test(name)) this.add(value);
    }
  }

  redact(text: string): string {
    if (this.#values.size === 0) return text;
    this.#compile();
    const inner = text.replace(this.#plain!, '***').replace(this.#encoded!, starsInBase64);
    return [...this.#values].reduce(withoutPartsAtEnds, inner);
  }

  /** The same value with every text in it redacted. */
  redactAll<T>(value: T): T {
    return this.#values.size === 0 ? value : (this.#walk(value) as T);
  }

  #walk(value: unknown): unknown {
    if (typeof value === 'string') return this.redact(value);
    if (Array.isArray(value)) return value.map((item) => this.#walk(item));
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, this.#walk(item)]));
  }

  #compile(): void {
    if (this.#plain !== undefined) return;
    const all = [...this.#values].sort((a, b) => b.length - a.length);
    const plain = all.flatMap((value) => [value, JSON.stringify(value).slice(1, -1), ...urlForms(value)]);
    this.#plain = new RegExp([...new Set(plain)].map(escaped).join('|'), 'g');
    const encoded = [...new Set(all.flatMap(base64Forms))].map(brokenIntoLines);
    // A value too short for any form of base64 matches nothing.
    this.#encoded = new RegExp(encoded.join('|') || '(?!)', 'g');
  }
}

/** What is cut into pieces may end with the beginning of a value, or begin with its end. */
const withoutPartsAtEnds = (text: string, value: string): string => {
  let result = text;
  for (let length = value.length - 1; length >= shortestPart; length -= 1) {
    if (result.endsWith(value.slice(0, length))) result = `${result.slice(0, -length)}***`;
    if (result.startsWith(value.slice(-length))) result = `***${result.slice(length)}`;
  }
  return result;
};
