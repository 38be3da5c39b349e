import { describe, expect, it } from 'vitest';
import { destinationSchema, destinationsOf, networkPolicySchema, ruleFor } from '../src/index.ts';

const isValid = (text: string): boolean => destinationSchema.safeParse(text).success;

describe('a destination', () => {
  it('is an address, a block, a name, all names below one, a name at a port, or a preset', () => {
    for (const text of [
      '198.51.100.7',
      '198.51.100.0/24',
      'Example.COM',
      '*.example.com',
      'example.com:22',
      '*',
      'npm',
    ])
      expect(isValid(text), text).toBe(true);
  });

  it('is refused where it is none of these', () => {
    for (const text of [
      ...[
        '',
        'localhost',
        'a b.com',
        'example.com:0',
        'example.com:99999',
        'example.com:',
        'ex*mple.com',
        '*.*.com',
      ],
      ...[
        'http://example.com',
        'example.com/x',
        '1.2.3',
        '1.2.3.4.5',
        '-a.com',
        'npm:443',
        'x.coppice',
        `${'a'.repeat(64)}.com`,
      ],
      ...['bücher.example', 'exa\u0000mple.com', '[::1]:80', '*.com:', '*.'],
    ])
      expect(isValid(text), text).toBe(false);
  });

  it('means the web where it says no port', () => {
    expect(destinationsOf(['example.com', '198.51.100.7'])).toEqual({
      blocks: ['198.51.100.7'],
      names: [{ pattern: 'example.com', ports: [80, 443] }],
      secrets: [],
    });
  });

  it('matches whole names only', () => {
    const { names } = destinationsOf(['example.com', '*.wide.example', 'ssh.example:22']);
    expect(ruleFor(names, 'example.com')).toBeDefined();
    expect(ruleFor(names, 'evil-example.com')).toBeUndefined();
    expect(ruleFor(names, 'example.com.evil.org')).toBeUndefined();
    expect(ruleFor(names, 'a.b.wide.example', 443)).toBeDefined();
    expect(ruleFor(names, 'wide.example')).toBeUndefined();
    expect(ruleFor(names, 'notwide.example')).toBeUndefined();
    expect(ruleFor(names, 'ssh.example', 443)).toBeUndefined();
  });

  it('cannot be denied as a name where everything may be reached by address', () => {
    expect(networkPolicySchema.safeParse({ allow_internet: true, deny: ['example.com'] }).success).toBe(
      false,
    );
    expect(networkPolicySchema.safeParse({ allow: ['*'], deny: ['example.com'] }).success).toBe(true);
  });
});
