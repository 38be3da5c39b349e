export interface SplitUrl {
  /** Without user and password. */
  readonly url: string;
  /** What the credential helper answers git with. */
  readonly env: Readonly<Record<string, string>>;
  /** What no answer may show. */
  readonly secrets: readonly string[];
}

/** Some services take a token as the user name, so one that is this long is treated as a secret. */
const tokenLength = 16;

/** A percent sign that encodes nothing stands for itself, as it does for git. */
const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/** Takes user and password out of an http or https URL. */
export const splitCredentials = (url: string): SplitUrl => {
  const parsed = /^https?:/.test(url) ? URL.parse(url) : null;
  if (parsed === null || (parsed.username === '' && parsed.password === ''))
    return { url, env: {}, secrets: [] };
  const user = decoded(parsed.username);
  const password = decoded(parsed.password);
  parsed.username = '';
  parsed.password = '';
  return password === ''
    ? { url: parsed.href, env: { GIT_USERNAME: 'x-access-token', GIT_PASSWORD: user }, secrets: [user] }
    : {
        url: parsed.href,
        env: { GIT_USERNAME: user, GIT_PASSWORD: password },
        secrets: user.length >= tokenLength ? [user, password] : [password],
      };
};
