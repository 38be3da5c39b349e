import { readFileSync } from 'node:fs';
import { CoppiceError, errorKinds, routes } from '@coppice/protocol';
import { describe, expect, it } from 'vitest';
import { affordableConnections } from '../src/config/descriptors.ts';
import { HostCheck } from '../src/doors/http/host-check.ts';
import { openApiDocument } from '../src/doors/http/openapi.ts';
import { toCoppiceError, toProblem } from '../src/doors/problem.ts';
import { outputText, unfinishedTail } from '../src/inside/output-text.ts';
import { JsonShape } from '../src/text/json-shape.ts';
import { RateLimiter } from '../src/tokens/rate-limiter.ts';
import { version } from '../src/version.ts';

const codeOf = (work: () => unknown): string => {
  try {
    work();
    return 'nothing thrown';
  } catch (error) {
    return (error as CoppiceError).code;
  }
};

describe('the check of Host and Origin', () => {
  const check = new HostCheck(['box.example']);

  it.each([
    ['127.0.0.1:7310', undefined],
    ['localhost', undefined],
    ['[::1]:7310', undefined],
    ['box.example:80', undefined],
    ['127.0.0.1:7310', 'http://127.0.0.1:7310'],
  ])('lets Host %s with Origin %s through', (host, origin) => {
    expect(() => check.check(host, origin)).not.toThrow();
  });

  it.each([
    [undefined, undefined],
    ['evil.example', undefined],
    ['127.0.0.1.evil.example', undefined],
    ['127.0.0.1:7310', 'http://evil.example'],
    ['127.0.0.1:7310', 'http://127.0.0.1:9999'],
    ['127.0.0.1:7310', 'null'],
  ])('refuses Host %s with Origin %s', (host, origin) => {
    expect(codeOf(() => check.check(host, origin))).toBe('forbidden');
  });
});

describe('the limit of calls', () => {
  it('lets a burst through, then says how long to wait, and lets more through after that', () => {
    let nowMs = 0;
    const limiter = new RateLimiter({ perSecond: 2, burst: 3 }, () => nowMs);
    for (let count = 0; count < 3; count += 1) limiter.take('a');
    expect(codeOf(() => limiter.take('a'))).toBe('rate_limited');
    limiter.take('b');
    nowMs = 500;
    limiter.take('a');
    expect(codeOf(() => limiter.take('a'))).toBe('rate_limited');
  });

  it('counts a large document as a second’s worth of calls, and never as more', () => {
    let nowMs = 0;
    const limiter = new RateLimiter({ perSecond: 10, burst: 10 }, () => nowMs);
    limiter.take('a');
    limiter.charge('a', 2 ** 40);
    expect(codeOf(() => limiter.take('a'))).toBe('rate_limited');
    limiter.take('b');
    nowMs = 200;
    limiter.take('a');
  });
});

describe('the places for connections', () => {
  it('are as many as asked for where half of the descriptors are left for work, and fewer otherwise', () => {
    const limits = (files: string) => `Max open files            ${files}               1048576   files`;
    expect(affordableConnections(1000, limits('1048576'))).toBe(1000);
    expect(affordableConnections(1000, limits('1024'))).toBe(170);
    expect(affordableConnections(1000, limits('unlimited'))).toBe(1000);
  });
});

describe('the shape of a JSON document', () => {
  const feed = (parts: Iterable<string>) => {
    const shape = new JsonShape();
    for (const part of parts) shape.feed(Buffer.from(part));
  };

  it('is taken for what it is, wherever it is cut into pieces', () => {
    const document = JSON.stringify({ a: '[,"\\'.repeat(30_000), b: [1, { c: '\\"' }], d: {} });
    expect(() => feed([document])).not.toThrow();
    expect(() => feed(document)).not.toThrow();
  });

  it('is refused where it is too deep or has too many values', () => {
    expect(() => feed('['.repeat(64))).not.toThrow();
    expect(codeOf(() => feed('[{"a":'.repeat(33)))).toBe('too_large');
    expect(codeOf(() => feed(['[', '0,'.repeat(20_001)]))).toBe('too_large');
  });
});

describe('problems', () => {
  it('carry the status, the hint and the details of our own errors', () => {
    const problem = toProblem(
      new CoppiceError('conflict', 'two paths clash', { details: { paths: ['/a'] } }),
    );
    expect(problem).toMatchObject({
      status: 409,
      code: 'conflict',
      detail: 'two paths clash',
      details: { paths: ['/a'] },
    });
    expect(problem.hint).toBe(errorKinds.conflict.hint);
  });

  it('tell nothing of the inside when the failure was not foreseen', () => {
    const problem = toProblem(toCoppiceError(new Error('password=hunter2')));
    expect(JSON.stringify(problem)).not.toContain('hunter2');
    expect(problem.status).toBe(500);
  });
});

describe('the OpenAPI document', () => {
  it('has an operation for every route, and the version of the package', () => {
    const document = openApiDocument(version) as {
      paths: Record<string, Record<string, { operationId: string }>>;
    };
    const operations = Object.values(document.paths).flatMap((path) =>
      Object.values(path).map((entry) => entry.operationId),
    );
    expect(operations.sort()).toEqual(Object.keys(routes).sort());
    const manifest = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')) as {
      version: string;
    };
    expect(version).toBe(manifest.version);
  });
});

describe('output as text', () => {
  it('knows where a character is cut', () => {
    const euro = Buffer.from('a€');
    expect(unfinishedTail(euro)).toBe(0);
    expect(unfinishedTail(euro.subarray(0, 3))).toBe(2);
    expect(unfinishedTail(euro.subarray(0, 2))).toBe(1);
    expect(unfinishedTail(Buffer.from([0xff, 0xff]))).toBe(0);
    expect(unfinishedTail(Buffer.alloc(0))).toBe(0);
  });

  it('comes as base64 too when it is not text', () => {
    expect(outputText(Buffer.from('plain'))).toEqual({ text: 'plain', base64: null });
    expect(outputText(Buffer.from([0xff, 0x00])).base64).toBe('/wA=');
  });
});
