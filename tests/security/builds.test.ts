import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

describe('the Dockerfile of a stranger', () => {
  let daemon: RunningDaemon;

  beforeAll(async () => {
    daemon = await RunningDaemon.start({ programs: ['truncate'] });
  });
  afterAll(() => daemon?.[Symbol.asyncDispose]());

  const build = (...lines: readonly string[]) =>
    daemon.client.images.build({
      name: 'built:1',
      dockerfile: ['FROM tiny', ...lines].join('\n'),
      disk_mb: 64,
    });

  test.each([
    ['a cache', 'RUN --mount=type=cache,target=/cache truncate -s 1T /cache/hole'],
    [
      'what lay in its place',
      'RUN mkdir /d && truncate -s 1T /d/hole\nRUN --mount=type=tmpfs,target=/d true',
    ],
  ])('puts no more of %s on the disk of the home than its own disk could hold', async (_what, lines) => {
    await expect(build(lines)).rejects.toMatchObject({ code: 'too_large' });
    expect(await daemon.client.sandboxes.list()).toEqual([]);
  });

  test('has variables that stand for others, and none becomes larger than a text may be', async () => {
    const lines = Array.from({ length: 40 }, (_, n) => `ARG V${n + 1}=${`\${V${n}}`.repeat(10)}`);
    await expect(build('ARG V0=xxxxxxxxxx', ...lines, 'RUN echo $V40')).rejects.toMatchObject({
      code: 'too_large',
    });
  });

  test('has defaults in defaults, so deep and no deeper', async () => {
    const nested = (depth: number): string => `${'${A:-'.repeat(depth)}x${'}'.repeat(depth)}`;
    await build(`ARG B=${nested(20)}`, 'RUN test "$B" = x');
    await expect(build(`ARG B=${nested(50_000)}`)).rejects.toMatchObject({ code: 'unsupported' });
  });

  test('has patterns of many stars, and others are served', async () => {
    const pattern = `${'*a'.repeat(40)}b`;
    await expect(
      build(`RUN touch /tmp/${'a'.repeat(250)}`, 'FROM tiny', `COPY --from=0 /tmp/${pattern} /x/`),
    ).rejects.toMatchObject({ code: expect.stringMatching(/not_found|invalid_argument/) });
  });
});
