import { routes } from '@coppice/protocol';
import { expect, test } from 'vitest';
import { routeTable } from '../src/route-table.ts';

test('the client calls exactly the routes that the daemon serves', () => {
  const served = Object.entries(routes).map(([name, { method, path }]) => [name, { method, path }]);
  expect(routeTable).toEqual(Object.fromEntries(served));
});
