import { expect, test } from 'vitest';
import { KeyedLock } from '../src/journal/keyed-lock.ts';

test('holders of one key come one after another in their order, those of another key do not wait', async () => {
  const lock = new KeyedLock();
  const order: string[] = [];
  const gate = Promise.withResolvers<void>();
  const first = lock.exclusive('a', async () => {
    await gate.promise;
    order.push('first');
  });
  const second = lock.exclusive('a', async () => void order.push('second'));
  await lock.exclusive('b', async () => void order.push('other'));
  gate.resolve();
  await Promise.all([first, second]);
  expect(order).toEqual(['other', 'first', 'second']);
  expect(lock.isHeld('a')).toBe(false);
});

test('sharers hold at once; an exclusive holder waits for them and holds up those who come later', async () => {
  const lock = new KeyedLock();
  const order: string[] = [];
  const gate = Promise.withResolvers<void>();
  const share = (name: string) =>
    lock.shared('a', async () => {
      order.push(`${name} in`);
      await gate.promise;
    });
  const sharers = [share('one'), share('two')];
  const writer = lock.exclusive('a', async () => void order.push('writer'));
  const late = share('late');
  await Promise.resolve();
  gate.resolve();
  await Promise.all([...sharers, writer, late]);
  expect(order).toEqual(['one in', 'two in', 'writer', 'late in']);
});

test('a holder that fails lets the next one in', async () => {
  const lock = new KeyedLock();
  await expect(lock.exclusive('a', () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  await expect(lock.exclusive('a', async () => 'yes')).resolves.toBe('yes');
});

test('who is urgent comes before all that wait, and after who holds it', async () => {
  const lock = new KeyedLock();
  const order: string[] = [];
  const gate = Promise.withResolvers<void>();
  const first = lock.exclusive('a', () => gate.promise);
  const second = lock.shared('a', async () => void order.push('second'));
  const urgent = lock.urgent('a', async () => void order.push('urgent'));
  gate.resolve();
  await Promise.all([first, second, urgent]);
  expect(order).toEqual(['urgent', 'second']);
});
