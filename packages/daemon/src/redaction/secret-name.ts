const secretWords = new Set([
  ...[
    'TOKEN',
    'SECRET',
    'PASSWORD',
    'PASSWD',
    'PASSPHRASE',
    'PASS',
    'PAT',
    'APIKEY',
    'CREDENTIAL',
    'CREDENTIALS',
  ],
  ...['AUTH', 'AUTHTOKEN', 'COOKIE'],
]);
/** A key is also a column, a key on the keyboard, or public. */
const secretKeys = new Set([
  ...['API', 'ACCESS', 'SECRET', 'PRIVATE', 'SIGNING', 'ENCRYPTION', 'MASTER', 'DEPLOY', 'AUTH', 'SERVICE'],
  ...['ACCOUNT', 'STORAGE', 'SSH', 'LICENSE', 'WEBHOOK', 'JWT', 'SESSION', 'HMAC'],
]);
/** How many tokens, or which of them mean something to a language model. */
const counted = new Set([
  'MAX',
  'MIN',
  'NUM',
  'BOS',
  'EOS',
  'PAD',
  'UNK',
  'SEP',
  'CLS',
  'MASK',
  'STOP',
  'START',
  'END',
]);

const wordsOf = (name: string): string[] =>
  name
    .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
    .toUpperCase()
    .split(/[^A-Z0-9]+/)
    .filter((word) => word !== '' && !/^\d+$/.test(word));

/**
 * Whether the name of a variable says that its value is a secret: by its last word, as in GIT_TOKEN, DB_PASSWORD and
 * OPENAI_API_KEY. MAX_TOKENS, GIT_AUTHOR_NAME, PRIMARY_KEY and TOKEN_FILE are none.
 */
export const isSecretName = (name: string): boolean => {
  const words = wordsOf(name);
  const [last = '', before = ''] = [words.at(-1), words.at(-2)];
  if (last === 'KEY') return secretKeys.has(before);
  return (secretWords.has(last) || /.PASSWORD$/.test(last)) && !counted.has(before);
};
