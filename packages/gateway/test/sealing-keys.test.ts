import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { keysOfCommand, keysOfFile } from '../src/secrets/sealing-keys.ts';
import { Secrets } from '../src/secrets/secrets.ts';
import { GatewayState } from '../src/state.ts';

let directory: string;
let state: GatewayState;
let file: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'coppice-keys-'));
  state = new GatewayState(join(directory, 'gateway.db'));
  file = join(directory, 'secrets.key');
});
afterEach(() => {
  state.close();
  rmSync(directory, { recursive: true, force: true });
});

test('a fresh key file takes the place of the old one, and what the old one opened is gone', () => {
  const secrets = new Secrets(state, keysOfFile(file));
  secrets.set('one', 'first value');
  const old = { key: readFileSync(file), sealed: state.secret('one')! };
  secrets.rekey(keysOfFile(file, true));
  expect(readFileSync(file).equals(old.key)).toBe(false);
  expect(secrets.value('one')).toBe('first value');
  expect(new Secrets(state, keysOfFile(file)).value('one')).toBe('first value');
  for (const name of ['gateway.db', 'gateway.db-wal'])
    expect(readFileSync(join(directory, name)).includes(old.sealed), name).toBe(false);
});

test('a rotation that is killed before or after the values are sealed anew is finished by the next start', () => {
  new Secrets(state, keysOfFile(file)).set('one', 'first value');
  // Killed once the next key was written down.
  keysOfFile(file, true);
  expect(new Secrets(state, keysOfFile(file)).value('one')).toBe('first value');
  // Killed once all was sealed with it.
  const keys = keysOfFile(file, true);
  new Secrets(state, { ...keys, settled: () => {} });
  expect(new Secrets(state, keysOfFile(file)).value('one')).toBe('first value');
  expect(() => readFileSync(`${file}.next`)).toThrow('ENOENT');
});

test('a home whose key was a file takes the key of a command, and the file is gone', () => {
  new Secrets(state, keysOfFile(file)).set('one', 'first value');
  const command = (): Secrets => new Secrets(state, keysOfCommand(`${'ab'.repeat(32)}\n`, file));
  expect(command().value('one')).toBe('first value');
  expect(() => readFileSync(file)).toThrow('ENOENT');
  expect(command().value('one')).toBe('first value');
});

test('without its key a value does not open, what is set anew does, and nothing is overwritten', () => {
  new Secrets(state, keysOfFile(file)).set('one', 'first value');
  const key = readFileSync(file);
  rmSync(file);
  const secrets = new Secrets(state, keysOfFile(file));
  expect(() => secrets.value('one')).toThrow('does not open with the key');
  secrets.set('two', 'second value');
  expect(secrets.value('two')).toBe('second value');
  expect(() => secrets.rekey(keysOfFile(file))).toThrow('no key that is here opens the secret one');
  // The key comes back from a backup: as the next line of a command, here.
  const keys = `${readFileSync(file).toString('hex')}\n${key.toString('hex')}`;
  writeFileSync(file, key);
  expect(new Secrets(state, keysOfCommand(keys, file)).value('one')).toBe('first value');
});
