import { describe, expect, it } from 'vitest';
import { formatImageReference, parseImageReference } from '../src/image-reference.ts';

const digest = `sha256:${'0123456789abcdef'.repeat(4)}`;

describe('the name of an image', () => {
  it.each([
    ['python', { registry: 'docker.io', repository: 'library/python', tag: 'latest' }],
    ['python:3.12-slim', { registry: 'docker.io', repository: 'library/python', tag: '3.12-slim' }],
    ['docker.io/python', { registry: 'docker.io', repository: 'library/python', tag: 'latest' }],
    [
      'index.docker.io/library/python',
      { registry: 'docker.io', repository: 'library/python', tag: 'latest' },
    ],
    ['org/app', { registry: 'docker.io', repository: 'org/app', tag: 'latest' }],
    ['ghcr.io/org/team/app:1.0', { registry: 'ghcr.io', repository: 'org/team/app', tag: '1.0' }],
    ['localhost/app', { registry: 'localhost', repository: 'app', tag: 'latest' }],
    ['localhost:5000/app', { registry: 'localhost:5000', repository: 'app', tag: 'latest' }],
    ['[::1]:5000/app:x', { registry: '[::1]:5000', repository: 'app', tag: 'x' }],
    [
      'registry.example:443/a__b/c-d.e',
      { registry: 'registry.example:443', repository: 'a__b/c-d.e', tag: 'latest' },
    ],
    [`python@${digest}`, { registry: 'docker.io', repository: 'library/python', digest }],
    [`ghcr.io/a/b:1@${digest}`, { registry: 'ghcr.io', repository: 'a/b', tag: '1', digest }],
  ])('%s means what docker takes it for', (text, reference) => {
    expect(parseImageReference(text)).toEqual(reference);
  });

  it.each([
    ['docker.io/library/python:3.12', 'python:3.12'],
    ['python', 'python:latest'],
    ['docker.io/org/app:1', 'org/app:1'],
    ['GHCR.io/org/app:1', 'ghcr.io/org/app:1'],
    [`localhost:5000/app@${digest}`, `localhost:5000/app@${digest}`],
  ])('%s is shown as %s, which means the same', (text, shown) => {
    const reference = parseImageReference(text);
    expect(formatImageReference(reference)).toBe(shown);
    expect(parseImageReference(shown)).toEqual(reference);
  });

  it.each([
    [''],
    ['Python'],
    ['a//b'],
    ['a/../b'],
    ['../../etc/passwd'],
    ['a b'],
    ['a:'],
    [`a:${'x'.repeat(129)}`],
    ['a@sha256:12'],
    ['a@md5:0123'],
    ['localhost:99999/app'],
    ['localhost:0/app'],
    ['user:password@host.example/app'],
    ['https://host.example/app'],
    ['host_name.example/app'],
    ['-host.example/app'],
    ['host.example/'],
    ['a\0b'],
    ['a'.repeat(513)],
  ])('%j is refused, with what a name looks like', (text) => {
    expect(() => parseImageReference(text)).toThrow(expect.objectContaining({ code: 'invalid_argument' }));
  });
});
