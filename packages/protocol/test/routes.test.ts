import { globSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Route } from '../src/route.ts';
import { routes } from '../src/routes.ts';

const source = join(import.meta.dirname, '../src');

/** The tables of all files, as each file has them. */
const tables = async (): Promise<Record<string, Route>[]> => {
  const files = globSync('*.ts', { cwd: source }).filter(
    (file) => file !== 'routes.ts' && file !== 'index.ts',
  );
  const modules = await Promise.all(files.map((file) => import(join(source, file))));
  return modules.flatMap((module: Record<string, unknown>) =>
    Object.entries(module)
      .filter(([name]) => name.endsWith('Routes'))
      .map(([, table]) => table as Record<string, Route>),
  );
};

const repeated = (values: readonly string[]): string[] =>
  values.filter((value, index) => values.indexOf(value) !== index);

test('no two files have a route of the same name, and every route is in the table', async () => {
  const names = (await tables()).flatMap((table) => Object.keys(table));
  expect(repeated(names)).toEqual([]);
  expect(names.toSorted()).toEqual(Object.keys(routes).toSorted());
});

test('no two routes answer the same call', () => {
  const calls = Object.values(routes as Record<string, Route>).map(
    ({ method, path }) => `${method} ${path.replaceAll(/:\w+/g, ':')}`,
  );
  expect(repeated(calls)).toEqual([]);
});
