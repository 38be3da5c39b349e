import { FormFinder } from './form-finder.ts';
import { LongSecrets } from './long-secrets.ts';
import { redact } from './redact.ts';
import { isSecretName } from './secret-name.ts';

/** What stands where a value was. No file has it by itself, so that it is known again when somebody writes it back. */
export const mask = '***hidden***';
/** The same inside base64, which stays as long as it was and can be decoded. */
const maskInBase64 = 'xMASKEDx';

/** Shorter ones are too likely to be a part of something else. */
const shortestLength = 6;
const shortestPart = 8;
/** Longer ones, and lines of values that have more of them, are looked for in another way. */
const longestLength = 256;
const mostLines = 64;
/** As many characters in all are looked for in base64 over several lines too. */
const mostChars = 1024;

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

const plainForms = (value: string): string[] => [JSON.stringify(value).slice(1, -1), ...urlForms(value)];

const maskedBase64 = (text: string): string => {
  let index = 0;
  return text.replace(/[^\r\n]/g, () => maskInBase64[index++ % maskInBase64.length]!);
};

/** Whether a text, or bytes in base64, has something that was shown in place of a value. */
export const hasMask = (text: string): boolean =>
  text.includes(mask) || text.replace(/[\r\n]/g, '').includes(maskInBase64);

/** The credentials that a call knows of, and texts without them: as they are, for URLs, in JSON and in base64. */
export class Secrets {
  readonly #values = new Set<string>();
  readonly #long = new LongSecrets();
  #plain: FormFinder | undefined;
  /** Programs break base64 into lines. */
  #encoded: FormFinder | undefined;
  #masked = false;

  /** Whether an answer lost something. */
  get masked(): boolean {
    return this.#masked;
  }

  add(value: string): void {
    const lines = value.split(/\r?\n/).filter((line) => line.length >= 16 && !line.startsWith('-----'));
    for (const text of [value.trim(), ...(lines.length > mostLines ? [] : lines)])
      if (text.length > longestLength) this.#addLong(text);
      else if (text.length >= shortestLength) this.#values.add(text);
    this.#plain = undefined;
  }

  /** Takes what the names call a credential, and passwords inside of URLs. */
  addEnvironment(vars: Readonly<Record<string, string | null>>): void {
    for (const [name, value] of Object.entries(vars)) {
      if (value === null) continue;
      if (redact(value) !== value && !/:\/\//.test(value)) this.add(value);
      const password = URL.parse(value)?.password ?? '';
      if (password !== '') this.add(decodeURIComponent(password));
      if (isSecretName(name)) this.add(value);
    }
  }

  #addLong(value: string): void {
    const isWhole = value.length <= longestLength;
    for (const form of [value, ...plainForms(value)]) this.#long.add(form, isWhole, () => mask);
    for (const form of base64Forms(value)) this.#long.add(form, isWhole, maskedBase64);
  }

  redact(text: string): string {
    if (this.#values.size > 0) this.#compile();
    const inner = this.#long.isEmpty ? text : this.#long.redact(text);
    if (this.#values.size === 0) return inner;
    const plain = this.#plain!.replace(inner, () => mask);
    return [...this.#values].reduce(withoutPartsAtEnds, this.#encoded!.replace(plain, maskedBase64));
  }

  /** The same value with every text in it redacted. */
  redactAll<T>(value: T): T {
    return this.#values.size === 0 && this.#long.isEmpty ? value : (this.#walk(value) as T);
  }

  #walk(value: unknown): unknown {
    if (typeof value === 'string') {
      const shown = this.redact(value);
      this.#masked ||= shown !== value;
      return shown;
    }
    if (Array.isArray(value)) return value.map((item) => this.#walk(item));
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, this.#walk(item)]));
  }

  #compile(): void {
    if (this.#plain !== undefined) return;
    this.#moveLong();
    const all = [...this.#values];
    this.#plain = new FormFinder(
      all.flatMap((value) => [value, ...plainForms(value)]),
      { overLines: false },
    );
    this.#encoded = new FormFinder(all.flatMap(base64Forms), { overLines: true });
  }

  /** Many values together are as much as one that is too long. */
  #moveLong(): void {
    let roomChars = mostChars;
    for (const value of [...this.#values].sort((a, b) => a.length - b.length)) {
      roomChars -= value.length;
      if (roomChars >= 0 || value.length < LongSecrets.leastChars) continue;
      this.#values.delete(value);
      this.#addLong(value);
    }
  }
}

/** What is cut into pieces may end with the beginning of a value, or begin with its end. */
const withoutPartsAtEnds = (text: string, value: string): string => {
  let result = text;
  for (let length = value.length - 1; length >= shortestPart; length -= 1) {
    if (result.endsWith(value.slice(0, length))) result = `${result.slice(0, -length)}${mask}`;
    if (result.startsWith(value.slice(-length))) result = `${mask}${result.slice(length)}`;
  }
  return result;
};
