import { readFileSync } from 'node:fs';
import { CoppiceError, errorKinds, routes } from '@coppice/protocol';
import { describe, expect, it } from 'vitest';
import { HostCheck } from '../src/api/http/host-check.ts';
import { openApiDocument } from '../src/api/http/openapi.ts';
import { toCoppiceError, toProblem } from '../src/api/http/problem.ts';
import { RateLimiter } from '../src/api/http/rate-limiter.ts';
import { outputText, unfinishedTail } from '../src/services/output-text.ts';
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
