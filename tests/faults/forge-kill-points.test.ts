import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { killPoints } from '../../packages/daemon/src/journal/kill-points.ts';
import { GitClient, withToken } from '../forge/git-client.ts';

describe('a daemon that is killed while it merges a pull request', () => {
  let daemon: RunningDaemon;
  let git: GitClient;

  beforeAll(async () => {
    daemon = await RunningDaemon.start({ image: false });
    git = await GitClient.make();
    await git.begin();
    await daemon.client.repositories.create({ name: 'app' });
    await git.ok('push', '--quiet', await address(), 'main');
  });
  afterAll(async () => {
    await git?.[Symbol.asyncDispose]();
    await daemon?.[Symbol.asyncDispose]();
  });

  const app = () => daemon.client.repositories.at('app');
  /** The port is another one after each start. */
  const address = async () => withToken((await app().info()).clone_url, daemon.token);

  test.each(killPoints.filter((point) => point.startsWith('forge-merge.')))(
    'at %s has merged it or has not, and merges it once when asked again',
    async (point) => {
      const branch = `feature/${point}`;
      await git.ok('fetch', '--quiet', await address(), 'main');
      await git.ok('switch', '--quiet', '-c', branch, 'FETCH_HEAD');
      const before = Number(await git.ok('rev-list', '--count', 'FETCH_HEAD'));
      const sha = await git.commit(`${point}.txt`, 'x\n');
      await git.ok('push', '--quiet', await address(), branch);
      const { number } = await app().createPull({ head: branch, title: point });
      daemon.armKillPoint(point);
      await expect(app().mergePull(number, { expected_head: sha })).rejects.toThrow();
      expect((await daemon.exited).signal).toBe('SIGKILL');
      daemon.disarm();
      await daemon.restart();

      const { state } = await app().pull(number);
      expect(state).toBe(point === 'forge-merge.recorded' ? 'open' : 'merged');
      const { merge_sha } = await app().mergePull(number, { expected_head: sha });
      expect(await app().pull(number)).toMatchObject({ state: 'merged', merge_sha });
      await git.ok('fetch', '--quiet', await address(), 'main');
      expect(await git.ok('rev-parse', 'FETCH_HEAD')).toBe(merge_sha);
      expect(Number(await git.ok('rev-list', '--count', 'FETCH_HEAD'))).toBe(before + 1);
    },
  );
});
