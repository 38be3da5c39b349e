import { eventually, type RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { killPoints } from '../../packages/daemon/src/journal/kill-points.ts';
import { GitClient, withToken } from '../forge/git-client.ts';
import { daemonWithGit } from '../mcp/git-image.ts';

describe('a daemon that is killed on the way from a ticket to a merge', () => {
  let daemon: RunningDaemon;
  let git: GitClient;

  beforeAll(async () => {
    daemon = await daemonWithGit();
    git = await GitClient.make();
    await git.begin();
    const { clone_url } = await daemon.client.repositories.create({ name: 'app' });
    await git.ok('push', '--quiet', withToken(clone_url, daemon.token), 'main');
  });
  afterAll(async () => {
    await git?.[Symbol.asyncDispose]();
    await daemon?.[Symbol.asyncDispose]();
  });

  test.each(killPoints.filter((point) => point.startsWith('branch-')))(
    'at %s goes on when it is asked again, and makes nothing twice',
    async (point) => {
      const { client } = daemon;
      const app = client.repositories.at('app');
      const { id: ticket } = await app.createIssue({ title: point });
      const query = { repository: 'app', branch: ticket };
      // The work is done by hand; the run only has to be there, and be one.
      const start = () =>
        client.branches.start({ repository: 'app', ticket, run: { task: 'wait', command: 'sleep 1000' } });
      const steps: Record<string, () => Promise<unknown>> = {
        'branch-start': start,
        'branch-finish': () => client.branches.finish(query),
        'branch-merge': () => client.branches.merge(query),
      };
      let killed = false;
      const take = async (name: string): Promise<void> => {
        if (!point.startsWith(`${name}.`)) {
          await steps[name]!();
          return;
        }
        daemon.armKillPoint(point);
        await expect(steps[name]!()).rejects.toThrow();
        expect((await daemon.exited).signal).toBe('SIGKILL');
        daemon.disarm();
        await daemon.restart();
        killed = true;
        await steps[name]!();
      };
      await take('branch-start');
      const { sandbox_id, branch_name, run_id } = await client.branches.status(query);
      await client.runs.stop(run_id!);
      await client.sandboxes.at(sandbox_id!).exec(`echo ${point} > /workspace/${point}.txt`);
      await take('branch-finish');
      await take('branch-merge');
      expect(killed).toBe(true);
      expect(await client.branches.status(query)).toMatchObject({ state: 'merged', branch_name });
      const pulls = (await app.pulls({ state: 'all' })).filter(({ head }) => head === branch_name);
      expect(pulls).toMatchObject([{ state: 'merged' }]);
      const runs = (await client.runs.list()).filter(({ ticket: of }) => of === ticket);
      expect(runs.map(({ id }) => id)).toEqual([run_id]);
      expect((await client.branches.list()).filter((each) => each.ticket === ticket)).toHaveLength(1);
      await eventually('no sandbox is left', async () => (await client.sandboxes.list()).length === 0);
    },
  );
});
