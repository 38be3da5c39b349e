/** Go's filepath.Match: `*` and `?` stand for anything but a slash, `[…]` for one of some characters. */
export function matchesPattern(pattern: string, path: string): boolean {
  let text = '^';
  for (let at = 0; at < pattern.length; at += 1) {
    const character = pattern[at]!;
    if (character === '*') text += '[^/]*';
    else if (character === '?') text += '[^/]';
    else if (character === '[') {
      const end = pattern.indexOf(']', at + 2);
      if (end < 0) return false;
      text += `[${pattern.slice(at + 1, end).replace(/[\\\]]/g, '\\$&')}]`;
      at = end;
    } else if (character === '\\' && at + 1 < pattern.length) {
      at += 1;
      text += escaped(pattern[at]!);
    } else text += escaped(character);
  }
  return new RegExp(`${text}$`, 's').test(path);
}

const escaped = (character: string): string => character.replace(/[.*+?^${}()|[\]\\/]/g, '\\$&');
