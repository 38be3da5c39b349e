import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Ajv } from 'ajv';
import type { Answered, Asked } from './stand-in.ts';

interface Operation {
  readonly query: object;
  readonly body: object | null;
  readonly answers: Readonly<Record<string, object | null>>;
}

const { operations, definitions } = JSON.parse(
  readFileSync(join(import.meta.dirname, '..', 'descriptions', 'github.json'), 'utf8'),
) as { operations: Record<string, Operation>; definitions: object };

const table = Object.entries(operations).map(([name, operation]) => {
  const [method = '', path = ''] = name.split(' ');
  // A ref has slashes; other parameters are one part of a path.
  const pattern = path
    .slice('/repos/{owner}/{repo}'.length)
    .replaceAll(/\{(ref|basehead)\}/g, '.+')
    .replaceAll(/\{\w+\}/g, '[^/]+');
  return { name, method, pattern: new RegExp(`^${pattern}$`), operation };
});

/** GitHub's own description of its API judges every request and every answer. */
export class GithubJudge {
  readonly #ajv = new Ajv({ strict: false, validateFormats: false, allErrors: true });
  readonly #loose = new Ajv({ strict: false, validateFormats: false, coerceTypes: true });
  readonly used = new Set<string>();

  static get operations(): string[] {
    return Object.keys(operations);
  }

  /** What is wrong; nothing if all is well. */
  complaints({ asked, answered }: { readonly asked: Asked; readonly answered: Answered }): string[] {
    const known = table.find(({ method, pattern }) => method === asked.method && pattern.test(asked.path));
    if (known === undefined) return [`GitHub has no ${asked.method} ${asked.path}`];
    this.used.add(known.name);
    const { query, body, answers } = known.operation;
    const answer = answers[String(answered.status)];
    return [
      ...this.#check(this.#loose, query, Object.fromEntries(asked.query), `${known.name}: query`),
      ...(body === null
        ? asked.body === undefined
          ? []
          : [`${known.name} takes no body`]
        : this.#check(this.#ajv, body, asked.body, `${known.name}: body`)),
      ...(answer === undefined
        ? [`${known.name} never answers ${answered.status}`]
        : answer === null
          ? []
          : this.#check(this.#ajv, answer, answered.body, `${known.name}: ${answered.status}`)),
    ];
  }

  #check(ajv: Ajv, schema: object, value: unknown, where: string): string[] {
    const isValid = ajv.compile({ ...schema, definitions });
    if (isValid(value)) return [];
    return (isValid.errors ?? []).map(({ instancePath, message }) => `${where}${instancePath} ${message}`);
  }
}
