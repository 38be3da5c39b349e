/**
 * Finds a few values in JSON as its bytes come, without keeping the rest: a document of any length takes the memory of
 * the values that are wanted and no more. Whatever the document holds, it only ever costs one look at each byte.
 */
export interface Wanted {
  /** `value` hands over the text of the value, `length` the length of a string, `range` only where it stands. */
  readonly take?: 'value' | 'length' | 'range';
  /** The name that the finder hears; several places may share one. */
  readonly name?: string;
  /** By key; `*` is every element of an array. */
  readonly in?: Readonly<Record<string, Wanted>>;
}

export interface Found {
  readonly name: string;
  /** The JSON text for `value`, empty otherwise. */
  readonly text: string;
  /** Offsets in the document, the quotes of a string included. */
  readonly start: number;
  readonly end: number;
  /** An object or array without members; only said of a `range`. */
  readonly isEmpty?: boolean;
}

export interface ScannerOptions {
  /** The longest value that is handed over. A longer one is not found. */
  readonly maxValueBytes?: number;
  /**
   * Refuses what another reader could understand otherwise: keys that differ from a wanted one only by case, and wanted
   * values that are too long to be handed over.
   */
  readonly isStrict?: boolean;
}

const maxDepth = 512;
const maxKeyBytes = 64;

const state = { value: 0, key: 1, colon: 2, comma: 3, string: 4, literal: 5, done: 6 } as const;
type State = (typeof state)[keyof typeof state];

const quote = 0x22;
const backslash = 0x5c;

const isSpace = (byte: number): boolean => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

/** Letters, digits, `+`, `-`, `.`: what numbers and `true`, `false`, `null` are made of. */
const isLiteral = (byte: number): boolean =>
  (byte >= 0x30 && byte <= 0x39) ||
  (byte >= 0x61 && byte <= 0x7a) ||
  (byte >= 0x41 && byte <= 0x5a) ||
  byte === 0x2b ||
  byte === 0x2d ||
  byte === 0x2e;

export class JsonScanner {
  readonly #root: Wanted;
  readonly #found: (found: Found) => void;
  readonly #maxValueBytes: number;
  readonly #strict: boolean;

  #state: State = state.value;
  #fault: string | undefined;
  #offset = 0;
  #depth = 0;
  readonly #isArray = new Uint8Array(maxDepth + 1);
  readonly #within: (Wanted | undefined)[] = [];
  /** What is wanted of the value that comes next, or that is being read. */
  #next: Wanted | undefined;
  #isKey = false;
  #escaped = false;
  #mayClose = false;
  #key: number[] = [];
  #start = 0;
  /** Containers whose place is wanted, outermost first. Few: only wanted ones are here. */
  readonly #open: { readonly wanted: Wanted; readonly depth: number; readonly start: number }[] = [];
  #kept: Buffer[] = [];
  #keptBytes = 0;
  #keeping = false;

  constructor(wanted: Wanted, found: (found: Found) => void, options: ScannerOptions = {}) {
    this.#root = wanted;
    this.#found = found;
    this.#maxValueBytes = options.maxValueBytes ?? 64 * 1024;
    this.#strict = options.isStrict ?? false;
    this.reset();
  }

  /** Why it is not JSON, or not JSON that may be read here. */
  get fault(): string | undefined {
    return this.#fault;
  }

  /** One whole value was read, with nothing but space after it. */
  get isWhole(): boolean {
    return this.#fault === undefined && this.#state === state.done;
  }

  /** The next byte begins a new document. */
  reset(): void {
    this.#state = state.value;
    this.#fault = undefined;
    this.#offset = 0;
    this.#depth = 0;
    this.#next = this.#root;
    this.#isKey = false;
    this.#escaped = false;
    this.#mayClose = false;
    this.#open.length = 0;
    this.#stopKeeping();
  }

  feed(chunk: Buffer): void {
    if (this.#fault !== undefined) return;
    let keepFrom = 0;
    for (let index = 0; index < chunk.length; index += 1) {
      const byte = chunk[index]!;
      switch (this.#state) {
        case state.string:
          if (this.#isKey) this.#readKey(byte);
          else {
            index = this.#skipString(chunk, index);
            if (index < chunk.length) this.#endValue(chunk, index + 1, keepFrom);
          }
          break;
        case state.literal:
          if (isLiteral(byte)) break;
          this.#endValue(chunk, index, keepFrom);
          index -= 1;
          break;
        case state.value:
          if (isSpace(byte)) break;
          if (byte === 0x5d && this.#mayClose) this.#close(chunk, index, keepFrom, 1);
          else {
            this.#mayClose = false;
            if (this.#begin(byte, this.#offset + index)) keepFrom = index;
          }
          break;
        case state.key:
          if (isSpace(byte)) break;
          if (byte === quote) {
            this.#state = state.string;
            this.#isKey = true;
            this.#key = [];
          } else if (byte === 0x7d && this.#mayClose) this.#close(chunk, index, keepFrom, 0);
          else this.#fault = 'a key is expected';
          break;
        case state.colon:
          if (isSpace(byte)) break;
          if (byte === 0x3a) this.#state = state.value;
          else this.#fault = 'a colon is expected';
          break;
        case state.comma:
          if (isSpace(byte)) break;
          if (byte === 0x2c) this.#nextMember();
          else if (byte === 0x7d) this.#close(chunk, index, keepFrom, 0);
          else if (byte === 0x5d) this.#close(chunk, index, keepFrom, 1);
          else this.#fault = 'a comma or an end is expected';
          break;
        default:
          if (!isSpace(byte)) this.#fault = 'something follows the document';
      }
      if (this.#fault !== undefined) return;
    }
    if (this.#keeping) this.#keep(chunk.subarray(this.#keptBytes === 0 ? keepFrom : 0));
    this.#offset += chunk.length;
  }

  /** No byte follows: a number may end here. */
  end(): void {
    if (this.#fault === undefined && this.#state === state.literal && this.#depth === 0)
      this.#endValue(Buffer.alloc(0), 0, 0);
  }

  #readKey(byte: number): void {
    if (!this.#escaped && byte === quote) {
      this.#endKey();
      return;
    }
    this.#escaped = !this.#escaped && byte === backslash;
    if (this.#key.length <= maxKeyBytes) this.#key.push(byte);
  }

  /** Where the string ends; most bytes of most documents are in strings, so this is a loop of its own. */
  #skipString(chunk: Buffer, from: number): number {
    let isEscaped = this.#escaped;
    let index = from;
    for (; index < chunk.length; index += 1) {
      const byte = chunk[index]!;
      if (isEscaped) isEscaped = false;
      else if (byte === backslash) isEscaped = true;
      else if (byte === quote) break;
    }
    this.#escaped = isEscaped;
    return index;
  }

  /** Says whether a value that is handed over begins at this byte. */
  #begin(byte: number, at: number): boolean {
    const wanted = this.#next;
    const outermost = !this.#keeping;
    if (byte === 0x7b || byte === 0x5b) {
      if (this.#depth >= maxDepth) {
        this.#fault = `nested deeper than ${maxDepth}`;
        return false;
      }
      const isArray = byte === 0x5b;
      if (wanted?.take === 'value' || wanted?.take === 'range')
        this.#open.push({ wanted, depth: this.#depth, start: at });
      this.#depth += 1;
      this.#isArray[this.#depth] = isArray ? 1 : 0;
      this.#within[this.#depth] = wanted?.in === undefined ? undefined : wanted;
      this.#mayClose = true;
      if (isArray) {
        this.#next = wanted?.in?.['*'];
        this.#state = state.value;
      } else this.#state = state.key;
    } else if (byte === quote) {
      this.#isKey = false;
      this.#state = state.string;
      this.#start = at;
    } else if (isLiteral(byte)) {
      this.#state = state.literal;
      this.#start = at;
    } else {
      this.#fault = 'a value is expected';
      return false;
    }
    if (wanted?.take !== 'value' || !outermost) return false;
    this.#keeping = true;
    return true;
  }

  #endKey(): void {
    const within = this.#within[this.#depth]?.in;
    this.#isKey = false;
    this.#state = state.colon;
    this.#next = undefined;
    if (within === undefined || this.#key.length > maxKeyBytes) return;
    const raw = Buffer.from(this.#key).toString('utf8');
    let key = raw;
    if (raw.includes('\\')) {
      try {
        key = JSON.parse(`"${raw}"`) as string;
      } catch {
        this.#fault = 'a key is not a string';
        return;
      }
    }
    if (Object.hasOwn(within, key)) this.#next = within[key];
    else if (this.#strict) {
      const folded = key.toLowerCase();
      if (Object.keys(within).some((known) => known.toLowerCase() === folded))
        this.#fault = `the key ${JSON.stringify(key)} is one of another case`;
    }
  }

  /** A string or a literal ended just before `end`. */
  #endValue(chunk: Buffer, end: number, keepFrom: number): void {
    const wanted = this.#next;
    if (wanted?.take !== undefined) {
      const at = this.#offset + end;
      if (wanted.take === 'value') {
        const inside = this.#open.some((open) => open.wanted.take === 'value');
        if (!inside)
          this.#hand(wanted, chunk.subarray(this.#keptBytes === 0 ? keepFrom : 0, end), this.#start, at);
      } else if (wanted.take === 'range' || this.#state === state.string)
        this.#found({ name: wanted.name ?? '', text: '', start: this.#start, end: at });
    }
    this.#afterValue();
  }

  #close(chunk: Buffer, index: number, keepFrom: number, isArray: 0 | 1): void {
    if (this.#depth === 0 || this.#isArray[this.#depth] !== isArray) {
      this.#fault = 'an end does not fit its beginning';
      return;
    }
    this.#depth -= 1;
    const open = this.#open.at(-1);
    if (open !== undefined && open.depth === this.#depth) {
      this.#open.pop();
      const end = this.#offset + index + 1;
      if (open.wanted.take === 'range')
        this.#found({
          name: open.wanted.name ?? '',
          text: '',
          start: open.start,
          end,
          isEmpty: this.#mayClose,
        });
      else if (!this.#open.some((outer) => outer.wanted.take === 'value'))
        this.#hand(
          open.wanted,
          chunk.subarray(this.#keptBytes === 0 ? keepFrom : 0, index + 1),
          open.start,
          end,
        );
    }
    this.#afterValue();
  }

  #afterValue(): void {
    this.#mayClose = false;
    this.#state = this.#depth === 0 ? state.done : state.comma;
  }

  #nextMember(): void {
    if (this.#isArray[this.#depth] === 1) {
      this.#next = this.#within[this.#depth]?.in?.['*'];
      this.#state = state.value;
    } else this.#state = state.key;
  }

  #keep(bytes: Buffer): void {
    // One byte more than may be handed over is enough to know that it was too long.
    const room = this.#maxValueBytes + 1 - this.#keptBytes;
    if (bytes.length > 0 && room > 0) this.#kept.push(Buffer.from(bytes.subarray(0, room)));
    this.#keptBytes += bytes.length;
  }

  #hand(wanted: Wanted, last: Buffer, start: number, end: number): void {
    this.#keep(last);
    const isWhole = this.#keptBytes <= this.#maxValueBytes;
    const text = isWhole ? Buffer.concat(this.#kept).toString('utf8') : '';
    this.#stopKeeping();
    if (isWhole) this.#found({ name: wanted.name ?? '', text, start, end });
    else if (this.#strict) this.#fault = `${wanted.name ?? 'a value'} is too long`;
  }

  #stopKeeping(): void {
    this.#kept = [];
    this.#keptBytes = 0;
    this.#keeping = false;
  }
}
