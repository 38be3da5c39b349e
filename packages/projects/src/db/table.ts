import type Database from 'better-sqlite3';

type Value = string | number | null;
const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const camel = (name: string): string =>
  name.replace(/_([a-z])/g, (_all, letter: string) => letter.toUpperCase());

/** Rows of one table as records: columns are the fields in snake case, and those named in `json` hold values. */
export class Table<T extends object> {
  readonly #database: Database.Database;
  readonly #name: string;
  readonly #json: ReadonlySet<string>;

  constructor(database: Database.Database, name: string, json: readonly (keyof T & string)[] = []) {
    this.#database = database;
    this.#name = name;
    this.#json = new Set(json);
  }

  /** Returns the number of the row. */
  insert(record: Partial<T>, orIgnore = false): { readonly rowId: number; readonly isNew: boolean } {
    const entries = this.#entries(record);
    const { lastInsertRowid, changes } = this.#database
      .prepare(
        `INSERT ${orIgnore ? 'OR IGNORE ' : ''}INTO ${this.#name} (${entries.map(([name]) => name).join(', ')})
         VALUES (${entries.map(() => '?').join(', ')})`,
      )
      .run(...entries.map(([, value]) => value));
    return { rowId: Number(lastInsertRowid), isNew: changes > 0 };
  }

  one(where: Partial<T>): T | undefined {
    return this.all(where, 'LIMIT 1')[0];
  }

  /** `rest`: ORDER BY, LIMIT; never text from outside. */
  all(where: Partial<T> = {}, rest = ''): T[] {
    const [condition, values] = this.#condition(where);
    return this.#database
      .prepare<Value[], Record<string, Value>>(`SELECT * FROM ${this.#name} ${condition} ${rest}`)
      .all(...values)
      .map((row) => this.#record(row));
  }

  update(where: Partial<T>, changes: Partial<T>): number {
    const [condition, values] = this.#condition(where);
    const entries = this.#entries(changes);
    if (entries.length === 0) return 0;
    return this.#database
      .prepare(`UPDATE ${this.#name} SET ${entries.map(([name]) => `${name} = ?`).join(', ')} ${condition}`)
      .run(...entries.map(([, value]) => value), ...values).changes;
  }

  delete(where: Partial<T>): number {
    const [condition, values] = this.#condition(where);
    if (condition === '') throw new Error(`all of ${this.#name} is not to be deleted at once`);
    return this.#database.prepare(`DELETE FROM ${this.#name} ${condition}`).run(...values).changes;
  }

  #condition(where: Partial<T>): [string, Value[]] {
    const entries = this.#entries(where);
    if (entries.length === 0) return ['', []];
    return [
      `WHERE ${entries.map(([name]) => `${name} IS ?`).join(' AND ')}`,
      entries.map(([, value]) => value),
    ];
  }

  #entries(record: Partial<T>): [string, Value][] {
    return Object.entries(record)
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => [
        snake(name),
        this.#json.has(name)
          ? JSON.stringify(value)
          : typeof value === 'boolean'
            ? Number(value)
            : (value as Value),
      ]);
  }

  #record(row: Record<string, Value>): T {
    return Object.fromEntries(
      Object.entries(row).map(([column, value]) => {
        const name = camel(column);
        return [name, this.#json.has(name) && value !== null ? JSON.parse(String(value)) : value];
      }),
    ) as T;
  }
}
