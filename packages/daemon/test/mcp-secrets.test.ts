import { randomBytes } from 'node:crypto';
import { inspect } from 'node:util';
import { describe, expect, test } from 'vitest';
import { cleanError } from '../src/redaction/clean-error.ts';
import { hasMask, mask, Secrets } from '../src/redaction/secrets.ts';

const secret = 'p@ss/word+with=odd "signs"';
const knowing = (...values: string[]): Secrets => {
  const secrets = new Secrets();
  for (const value of values) secrets.add(value);
  return secrets;
};

describe('a known secret', () => {
  test.each([
    ['as it is', `it is ${secret}!`],
    ['in a URL', `https://x:${encodeURIComponent(secret)}@host/`],
    ['in a URL with small letters', encodeURIComponent(secret).replace(/%../g, (code) => code.toLowerCase())],
    ['in a form', new URLSearchParams({ field: secret }).toString()],
    ['inside JSON', JSON.stringify({ text: `a ${secret} b` })],
  ])('is taken out of text %s', (_how, text) => {
    const shown = knowing(secret).redact(text);
    expect(shown).toContain('***hidden***');
    for (const part of ['word', 'odd', 'signs']) expect(shown).not.toContain(part);
  });

  test('is taken out of base64 wherever it begins in it, also over several lines, and what is left decodes', () => {
    for (const before of ['', 'u', 'us', 'user:', 'x-access-token:']) {
      const encoded = Buffer.from(`${before}${secret} and more`).toString('base64');
      for (const text of [encoded, encoded.replace(/.{7}/g, '$&\n')]) {
        const shown = knowing(secret).redact(text);
        expect(shown.length).toBe(text.length);
        const decoded = Buffer.from(shown, 'base64').toString('latin1');
        expect(decoded).not.toContain(secret.slice(1, -1));
        expect(decoded).toContain('and more');
      }
    }
    const url = Buffer.from(`user:${secret}`).toString('base64url');
    expect(Buffer.from(knowing(secret).redact(url), 'base64url').toString()).not.toContain('word');
  });

  test('is taken out where a text was cut in the middle of it', () => {
    const secrets = knowing('0123456789abcdef');
    expect(secrets.redact('begins 0123456789')).toBe('begins ***hidden***');
    expect(secrets.redact('6789abcdef goes on')).toBe('***hidden*** goes on');
    expect(secrets.redact('cdef')).toBe('cdef');
  });

  test('of several lines is taken out line by line, without its marks', () => {
    const key = '-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\nyX0jJzXQ0aB1cD2eF3gH\n-----END KEY-----\n';
    const shown = knowing(key).redact('-----BEGIN KEY-----\nsecond line: yX0jJzXQ0aB1cD2eF3gH');
    expect(shown).toBe('-----BEGIN KEY-----\nsecond line: ***hidden***');
    expect(knowing(key).redact(`a${key}b`)).not.toContain('MIIE');
  });

  describe('that is long, or one of many,', () => {
    const random = (chars: number): string => randomBytes(chars).toString('base64').slice(0, chars);
    const key = Array.from({ length: 2000 }, () => random(64)).join('\n');

    test('is taken out as it is, in part, in JSON, in a URL and in base64', () => {
      const secrets = knowing(key);
      const part = key.slice(50_000, 50_100);
      const encoded = Buffer.from(`x${key}`).toString('base64');
      for (const text of [
        `a ${key} b`,
        `a ${part} b`,
        JSON.stringify({ key }),
        encodeURIComponent(key),
        encoded,
        encoded.replace(/.{76}/g, '$&\n'),
      ]) {
        const shown = secrets.redact(text);
        for (let at = 3; at + 35 < text.length; at += text.length > 1000 ? 997 : 1)
          expect(shown).not.toContain(text.slice(at, at + 32));
      }
      expect(secrets.redact('nothing of it')).toBe('nothing of it');
    });

    test('is taken out also when there are a thousand', () => {
      const tokens = Array.from({ length: 1000 }, (_, i) => random(i % 2 === 0 ? 16 : 60));
      const all = knowing(...tokens);
      for (const token of [tokens[0]!, tokens[501]!, tokens[998]!]) {
        expect(all.redact(`it is ${token}.`)).toBe('it is ***hidden***.');
        const decoded = Buffer.from(all.redact(Buffer.from(token).toString('base64')), 'base64');
        expect(decoded.toString('latin1')).not.toContain(token.slice(2, -2));
      }
    });
  });

  test('is taken out of every text of an answer', () => {
    const answer = { a: ['x-secret-x', { b: 'secret' }], n: 1, none: null };
    expect(knowing('secret').redactAll(answer)).toEqual({
      a: ['x-***hidden***-x', { b: '***hidden***' }],
      n: 1,
      none: null,
    });
  });
});

test('a known secret is in no text of an error that goes to the log, nor in its causes', () => {
  const secrets = new Secrets();
  secrets.add('hunter2-and-more');
  const error = new TypeError('not hunter2-and-more', {
    cause: new Error('because of hunter2-and-more', { cause: 'hunter2-and-more' }),
  });
  const clean = cleanError(error, (text) => secrets.redact(text)) as Error;
  expect(inspect(clean, { depth: 9, showHidden: true })).not.toContain('hunter2');
  expect(clean).toMatchObject({
    name: 'TypeError',
    message: 'not ***hidden***',
    cause: { cause: '***hidden***' },
  });
  expect(clean.stack).toContain('mcp-secrets.test.ts');
});

test('variables are secrets by their name, by their shape, and as the password of a URL; others are shown', () => {
  const secrets = new Secrets();
  secrets.addEnvironment({
    GIT_TOKEN: 'from-token',
    DB_PASSWORD: 'from-password',
    OPENAI_API_KEY: 'from-key',
    SOMETHING: 'ghp_0123456789abcdefghij',
    DATABASE_URL: 'postgres://me:from-url@db/x',
    NODE_ENV: 'production',
    KEYBOARD: 'querty-layout',
    GIT_ASKPASS: '/usr/bin/askpass',
    SSH_AUTH_SOCK: '/tmp/agent.sock',
    MY_TOKEN: null,
    SHORT_TOKEN: 'abc',
  });
  const text =
    'from-token from-password from-key ghp_0123456789abcdefghij from-url production querty-layout /usr/bin/askpass /tmp/agent.sock abc';
  expect(secrets.redact(text)).toBe(
    '***hidden*** ***hidden*** ***hidden*** ***hidden*** ***hidden*** production querty-layout /usr/bin/askpass /tmp/agent.sock abc',
  );
});

test.each([
  'MAX_TOKENS',
  'GIT_AUTHOR_NAME',
  'PRIMARY_KEY',
  'FOREIGN_KEY',
  'PUBLIC_KEY',
  'EOS_TOKEN',
  'TOKEN_LIMIT',
  'SECRET_NAME',
  'PASSWORD_FILE',
  'TOKENIZERS_PARALLELISM',
  'AUTHOR',
  'KEYCLOAK_REALM',
  'PASSENGER',
  'PWD',
])('the value of %s is shown', (name) => {
  const secrets = new Secrets();
  secrets.addEnvironment({ [name]: 'ordinary value' });
  expect(secrets.redactAll({ text: 'an ordinary value' })).toEqual({ text: 'an ordinary value' });
  expect(secrets.masked).toBe(false);
});

test.each([
  'TOKEN',
  'GITHUB_TOKEN_2',
  'AWS_SECRET_ACCESS_KEY',
  'PGPASSWORD',
  'clientSecret',
  'STRIPE_SECRET_KEY',
  'npm_config__auth',
])('the value of %s is masked, and that is said', (name) => {
  const secrets = new Secrets();
  secrets.addEnvironment({ [name]: 'hidden value' });
  expect(secrets.redactAll({ text: 'a hidden value' })).toEqual({ text: `a ${mask}` });
  expect(secrets.masked).toBe(true);
});

test('a mask is known again, in text and in base64 of any number of lines', () => {
  const secrets = knowing('hunter2-and-more');
  expect(hasMask(secrets.redact('it is hunter2-and-more'))).toBe(true);
  const encoded = Buffer.from('it is hunter2-and-more').toString('base64').replace(/.{5}/g, '$&\n');
  expect(hasMask(secrets.redact(encoded))).toBe(true);
  for (const text of ['/*** a banner ***/', '***', Buffer.from('******************').toString('base64')])
    expect(hasMask(text)).toBe(false);
});
