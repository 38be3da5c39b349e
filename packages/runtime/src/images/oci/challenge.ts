/** What a registry asks for in a `WWW-Authenticate` header. */
export interface Challenge {
  readonly scheme: string;
  readonly parameters: Readonly<Record<string, string>>;
}

const token = /[!#$%&'*+.^_`|~0-9A-Za-z-]+/y;

/** One header may hold several; what cannot be read ends the list. */
export function parseChallenges(header: string): Challenge[] {
  const challenges: Challenge[] = [];
  let at = 0;
  const skip = (characters: string): void => {
    while (at < header.length && characters.includes(header[at]!)) at += 1;
  };
  const take = (): string | undefined => {
    token.lastIndex = at;
    const found = token.exec(header)?.[0];
    if (found !== undefined) at += found.length;
    return found;
  };
  const takeQuoted = (): string | undefined => {
    let text = '';
    for (at += 1; at < header.length; at += 1) {
      if (header[at] === '"') {
        at += 1;
        return text;
      }
      if (header[at] === '\\') at += 1;
      text += header[at] ?? '';
    }
    return undefined;
  };
  for (;;) {
    skip(' \t,');
    const scheme = take();
    if (scheme === undefined) return challenges;
    const parameters: Record<string, string> = {};
    challenges.push({ scheme: scheme.toLowerCase(), parameters });
    for (;;) {
      skip(' \t,');
      const start = at;
      const key = take();
      if (key === undefined || header[at] !== '=') {
        // No parameter: the next scheme begins here.
        at = start;
        break;
      }
      at += 1;
      const value = header[at] === '"' ? takeQuoted() : take();
      if (value === undefined) return challenges;
      parameters[key.toLowerCase()] = value;
    }
  }
}
