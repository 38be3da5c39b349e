import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { eventually, type RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Agent, type Answer } from './agent.ts';
import { daemonWithGit } from './git-image.ts';

/** Every tool in a real call: the fields that agents know it by, and no others; the client checks them against its schema. */
describe('the answers', () => {
  const answered = new Set<string>();
  let daemon: RunningDaemon;
  let agent: Agent;
  let transfers: string;

  beforeAll(async () => {
    transfers = await mkdtemp(join(tmpdir(), 'coppice-transfers-'));
    daemon = await daemonWithGit({ transfer_dir: transfers });
    agent = await Agent.overHttp(daemon);
  });
  afterAll(async () => {
    await agent?.client.close();
    await daemon?.[Symbol.asyncDispose]();
    if (transfers !== undefined) await rm(transfers, { recursive: true, force: true });
  });

  const fields = (value: unknown): string =>
    Object.keys(value as object)
      .sort()
      .join(' ');
  const answer = async <T = Answer>(tool: string, args: Answer, wanted: string): Promise<T> => {
    const given = await agent.ok<T>(tool, args);
    expect(fields(given), tool).toBe(wanted.split(' ').sort().join(' '));
    answered.add(tool);
    return given;
  };
  const fresh = (word: string): string => `${word}-${randomBytes(4).toString('hex')}`;
  const workspace = async (): Promise<{ workspace_id: string; name: string }> =>
    answer('workspace_create', {}, 'workspace_id name state ip boot_time_ms from_pool resources expires_at');

  test('of the life of a workspace have the fields and defaults that agents know', async () => {
    const { workspace_id, name } = await workspace();
    const here = { workspace_id };
    const listed = await answer<{ workspaces: Answer[] }>(
      'workspace_list',
      { state_filter: 'running' },
      'workspaces',
    );
    const found = listed.workspaces.find((item) => item.workspace_id === workspace_id);
    expect(fields(found)).toBe('ip name owned resources session state workspace_id');
    expect(found).toMatchObject({ resources: { vcpus: 2, memory_mb: 512, disk_gb: 10 } });
    const info = await answer(
      'workspace_info',
      here,
      'workspace_id name state ip owned session failure base_image driver resources env_names network snapshots forked_from created_at disk_used_bytes disk_volsize_bytes memory_used_bytes mounts',
    );
    expect(info).toMatchObject({
      forked_from: null,
      disk_volsize_bytes: 10 * 1024 ** 3,
      network: { allow_internet: false, allow_inter_vm: false, allowed_ports: [], port_forwards: [] },
    });
    expect(await answer('workspace_ip', here, 'workspace_id ip')).toEqual({ workspace_id, ip: null });
    const policy = { ...here, allow_inter_vm: true, allowed_ports: [80] };
    expect(await answer('network_policy', policy, 'workspace_id network_policy')).toMatchObject({
      network_policy: { allow_internet: false, allow_inter_vm: true, allowed_ports: [80] },
    });
    expect(await agent.ok('workspace_ip', here)).toMatchObject({ ip: expect.stringMatching(/^[\d.]+$/) });
    expect(await answer('set_env', { ...here, vars: { KEPT: 'yes' } }, 'count status names')).toMatchObject({
      count: 1,
    });
    await answer('workspace_stop', here, 'workspace_id name state ip');
    expect(await agent.ok('workspace_list', { state_filter: 'stopped' })).toMatchObject({
      workspaces: [{ name }],
    });
    await answer('workspace_start', here, 'workspace_id name state ip');
    // What set_env gave holds after a restart of the workspace.
    expect(await agent.ok('exec', { ...here, command: 'echo $KEPT' })).toMatchObject({ stdout: 'yes\n' });
    const logs = await answer<{ console: string }>('workspace_logs', here, 'workspace_id console stderr');
    expect(logs.console).toMatch(/ sandbox\.\w+\n/);
    expect(await agent.ok('workspace_logs', { ...here, log_type: 'console', max_lines: 1 })).toMatchObject({
      console: expect.stringMatching(
        /^\[TRUNCATED: the last 1 of \d+ lines; raise max_lines for more\]\n.+$/,
      ),
      stderr: '',
    });
    expect(await answer('workspace_adopt', here, 'workspace_id name state ip adopted forced')).toMatchObject({
      adopted: false,
      forced: false,
    });
    expect(await agent.ok('workspace_adopt')).toEqual({
      adopted: [],
      adopted_count: 0,
      error_count: 0,
      errors: [],
    });
    await answer('workspace_destroy', here, 'workspace_id name status snapshots_kept');
  });

  test('of commands, jobs and ports have the fields and defaults that agents know', async () => {
    const { workspace_id } = await workspace();
    const here = { workspace_id };
    await answer(
      'exec',
      { ...here, command: 'pwd; echo $X', env: { X: '1' }, workdir: '/tmp' },
      'exit_code stdout stderr truncated duration_ms',
    );
    const { job_id } = await answer<{ job_id: number }>(
      'exec_background',
      { ...here, command: 'echo up; exec sleep 3000' },
      'job_id status pid',
    );
    const job = { ...here, job_id };
    await answer(
      'exec_poll',
      { ...job, cursor: 0, wait_secs: 60 },
      'job_id running exit_code stdout stderr cursor dropped_bytes',
    );
    expect(await answer('exec_kill', job, 'job_id signal status')).toEqual({
      job_id,
      signal: 9,
      status: 'signalled',
    });
    expect(await agent.ok('exec_poll', { ...job, wait_secs: 60 })).toMatchObject({ exit_code: 137 });
    expect(await agent.ok('exec_kill', job)).toMatchObject({ status: 'ended' });
    const parallel = await answer<{ results: Answer[]; summary: Answer }>(
      'exec_parallel',
      { workspace_ids: [workspace_id], commands: 'true' },
      'results summary',
    );
    expect(fields(parallel.results[0])).toBe('exit_code stderr stdout timed_out workspace_id workspace_name');
    expect(fields(parallel.summary)).toBe('elapsed_ms failed succeeded timed_out total');

    const forward = { ...here, guest_port: 8080 };
    const first = await answer<{ host_port: number }>(
      'port_forward',
      forward,
      'workspace_id guest_port host_port url',
    );
    expect(await agent.ok('port_forward', forward)).toMatchObject(first);
    const other = await agent.ok<{ host_port: number }>('port_forward', { ...here, guest_port: 81 });
    // A host port that cannot be had takes nothing away.
    expect(await agent.refused('port_forward', { ...forward, host_port: other.host_port })).toMatch(/Next: /);
    expect(await agent.ok('port_forward', forward)).toMatchObject(first);
    // One that can takes the place of the first, as the guide does it.
    await agent.ok('port_forward_remove', { ...here, guest_port: 81 });
    const moved = { ...forward, host_port: other.host_port };
    expect(await agent.ok('port_forward', moved)).toMatchObject({ host_port: other.host_port });
    expect(await agent.ok('workspace_info', here)).toMatchObject({
      network: { port_forwards: [{ guest_port: 8080, host_port: other.host_port }] },
    });
    await answer('port_forward_remove', forward, 'workspace_id guest_port status');
    await agent.ok('workspace_destroy', here);
  });

  test('of files have the fields and defaults that agents know, up to 32 MiB', async () => {
    const { workspace_id } = await workspace();
    const at = (path: string) => ({ workspace_id, path });
    expect(await answer('file_write', { ...at('big'), content: 'x'.repeat(2 ** 25) }, 'path bytes')).toEqual({
      path: '/workspace/big',
      bytes: 2 ** 25,
    });
    const part = await answer(
      'file_read',
      { ...at('big'), offset: 2 ** 25 - 3, limit: 2 },
      'path content encoding mime_type size_bytes offset truncated next_offset',
    );
    expect(part).toMatchObject({ content: 'xx', size_bytes: 2 ** 25, next_offset: 2 ** 25 - 1 });
    const uri = `coppice://sandbox/${workspace_id}/file/workspace/big`;
    const { contents } = await agent.client.readResource({ uri });
    expect(contents).toMatchObject([
      { text: 'x'.repeat(4 * 2 ** 20) },
      {
        text: `[TRUNCATED: ${2 ** 25} bytes total; read on with file_read path=/workspace/big offset=${2 ** 22}]`,
      },
    ]);
    await agent.ok('file_write', { ...at('small'), content: 'a b' });
    await answer(
      'file_edit',
      { ...at('small'), old_string: 'b', new_string: 'c' },
      'path replacements bytes',
    );
    expect(
      await agent.refused('file_write', { ...at('no'), content: 'not base64', encoding: 'base64' }),
    ).toMatch(/not base64\nNext: .*file_write/);
    for (const name of ['one', 'two']) await agent.ok('file_write', { ...at(`many/${name}`), content: '' });
    const listed = await answer<{ entries: Answer[] }>('file_list', at('many'), 'path entries truncated');
    expect(fields(listed.entries[0])).toBe('kind modified name permissions size');
    expect(await agent.ok('file_list', { ...at('many'), limit: 1 })).toMatchObject({
      truncated: true,
      note: expect.stringContaining('raise limit'),
    });
    await writeFile(join(transfers, 'in.csv'), 'a,b\n');
    const transferred = 'workspace_id host_path guest_path bytes';
    await answer('file_upload', { workspace_id, host_path: 'in.csv', guest_path: 'in.csv' }, transferred);
    await answer('file_download', { workspace_id, host_path: 'out.csv', guest_path: 'in.csv' }, transferred);
    await agent.ok('workspace_destroy', { workspace_id });
  });

  test('of snapshots and forks have the fields and defaults that agents know', async () => {
    const { workspace_id, name } = await workspace();
    const here = { workspace_id };
    await agent.ok('workspace_stop', here);
    // One that is stopped is snapshotted too.
    await answer(
      'snapshot_create',
      { ...here, name: 'golden' },
      'snapshot_id name workspace_id has_memory created_at',
    );
    await agent.ok('workspace_start', here);
    const { snapshots } = await answer<{ snapshots: Answer[] }>('snapshot_list', here, 'snapshots');
    expect(fields(snapshots[0])).toBe(
      'automatic created_at has_memory id name parent referenced_bytes used_bytes',
    );
    await agent.ok('exec', { ...here, command: 'echo 1 > a; echo 2 > b' });
    const golden = { ...here, snapshot_name: 'golden' };
    const diff = 'workspace_id snapshot_name changes summary truncated';
    await answer('snapshot_diff', golden, diff);
    expect(await agent.ok('snapshot_diff', { ...golden, limit: 1 })).toMatchObject({
      truncated: true,
      note: expect.stringContaining('raise limit'),
    });
    const { images } = await answer<{ images: { name: string }[] }>(
      'image_list',
      {},
      'images default_driver drivers',
    );
    const base = images[0]!.name;
    const image =
      'image digest size_mb source layers used_by entrypoint cmd env user working_dir exposed_ports warnings';
    await answer('image_inspect', { image: base }, image);
    await agent.ok('file_write', { ...here, path: 'Dockerfile', content: `FROM ${base}\nCMD ["true"]\n` });
    await answer('image_build', { ...here, name: 'built:1' }, `${image} steps cached_steps`);
    await answer('image_commit', { ...here, name: 'committed:1' }, image);
    const archive = { host_path: 'committed.tar' };
    await answer('image_export', { ...archive, image: 'committed:1' }, 'image host_path bytes');
    await answer('image_remove', { image: 'committed:1' }, 'image status');
    await answer('image_import', archive, image);
    await answer('image_prune', {}, 'removed build_snapshots freed_bytes');
    await answer('file_diff', { from: `${name}:golden`, to: name }, 'changes summary');
    await answer(
      'snapshot_restore',
      golden,
      'workspace_id snapshot_id snapshot_name state with_memory undo_snapshot_id',
    );
    const fork = await answer<{ workspace_id: string }>(
      'workspace_fork',
      golden,
      'workspace_id name state ip forked_from',
    );
    const merge = { from: fork.workspace_id, into: workspace_id, dry_run: true };
    await answer(
      'file_merge',
      merge,
      'applied changes summary conflicts undo_snapshot_id repositories left_out',
    );
    const many = await answer<{ workers: { workspace_id: string; name: string }[] }>(
      'workspace_batch_fork',
      { ...here, count: 2 },
      'source_workspace_id snapshot_name requested_count success_count failure_count workers failures',
    );
    expect(many).toMatchObject({ source_workspace_id: workspace_id, snapshot_name: 'golden' });
    expect(many.workers.map((worker) => worker.name).sort()).toEqual(['worker-1', 'worker-2']);
    // The source may go before its forks; they say where they came from all the same.
    await agent.ok('workspace_destroy', here);
    expect(await agent.ok('workspace_info', { workspace_id: fork.workspace_id })).toMatchObject({
      forked_from: { source_workspace_name: name, snapshot_name: 'golden' },
    });
    for (const { workspace_id: id } of [fork, ...many.workers])
      await agent.ok('workspace_destroy', { workspace_id: id });

    const second = { workspace_id: (await workspace()).workspace_id };
    await agent.ok('snapshot_create', { ...second, name: 'unused' });
    await answer(
      'snapshot_delete',
      { ...second, snapshot_name: 'unused' },
      'workspace_id snapshot_name status',
    );
    await agent.ok('workspace_destroy', second);
  });

  test('of repositories and swarms have the fields and defaults that agents know', async () => {
    const { workspace_id, name } = await workspace();
    const here = { workspace_id };
    const serve =
      'git init -q -b main /srv/r && cd /srv/r && git config user.email a@b.c && git config user.name a && git config receive.denyCurrentBranch ignore && echo 1 > base && git add . && git commit -qm first';
    expect(await agent.ok('exec', { ...here, command: serve })).toMatchObject({ exit_code: 0 });
    // All tools of git mean the same directory when none is named.
    const cloned = await answer(
      'git_clone',
      { ...here, url: 'file:///srv/r', depth: 1 },
      'success path commit_sha url branch depth',
    );
    expect(cloned).toMatchObject({ path: '/workspace', branch: 'main', depth: 1 });
    expect(await agent.refused('git_clone', { ...here, url: 'file:///srv/r' })).toMatch(
      /Next: .*git_clone .*path/,
    );
    await answer(
      'workspace_git_status',
      here,
      'branch ahead behind staged modified untracked conflicted dirty',
    );
    await agent.ok('exec', { ...here, command: 'seq 5000 > base' });
    expect(await answer('git_diff', { ...here, max_bytes: 100 }, 'diff truncated stat')).toMatchObject({
      truncated: true,
      diff: expect.stringMatching(/\[TRUNCATED: .*max_bytes\]$/),
    });
    expect(await agent.ok('git_diff', { ...here, stat: true })).toMatchObject({ diff: '', truncated: false });
    expect(await agent.ok('git_diff', { ...here, staged: true })).toMatchObject({ diff: '' });
    const commit = { ...here, message: 'more' };
    expect(await agent.ok('git_commit', { ...commit, add_all: false })).toMatchObject({
      status: 'nothing_to_commit',
    });
    await answer('git_commit', commit, 'status commit_sha short_sha branch summary');
    await answer('git_push', here, 'remote branch success output');
    await agent.ok('snapshot_create', { ...here, name: 'base' });
    const fork = await agent.ok<{ workspace_id: string }>('workspace_fork', {
      ...here,
      snapshot_name: 'base',
    });
    await agent.ok('file_write', { workspace_id: fork.workspace_id, path: 'new', content: '1' });
    await agent.ok('git_commit', { workspace_id: fork.workspace_id, message: 'new' });
    const merged = await answer<{ merged_sources: Answer[] }>(
      'workspace_merge',
      { source_workspaces: [fork.workspace_id], target_workspace: name },
      'success strategy total_commits_applied merged_sources conflicts',
    );
    expect(merged).toMatchObject({ strategy: 'sequential', total_commits_applied: 1 });
    for (const id of [fork.workspace_id, workspace_id])
      await agent.ok('workspace_destroy', { workspace_id: id });

    const gold = fresh('gold');
    const prepared = 'workspace_id name snapshot_name snapshot_id reused_existing ip';
    const prepare = { name: gold, setup_commands: ['sleep 0.3; echo ready > ready'] };
    // Two at once with one name: one makes it, the other answers with the same.
    const both = await Promise.all([0, 1].map(() => answer<Answer>('workspace_prepare', prepare, prepared)));
    expect(both.map((one) => one.reused_existing).sort()).toEqual([false, true]);
    expect(both[0]!.snapshot_id).toBe(both[1]!.snapshot_id);
    const swarm = await answer<{ tasks: { stdout: string; workspace_id: string }[]; summary: Answer }>(
      'swarm_run',
      {
        golden_workspace: gold,
        tasks: [{ name: 'a', command: 'cat ready; echo $ALL $OWN; seq 5000', env: { OWN: 'own' } }],
        env_vars: { ALL: 'all' },
        max_output_bytes: 100,
      },
      'swarm_id tasks summary',
    );
    expect(fields(swarm.summary)).toBe('failed succeeded total_elapsed_ms total_tasks workers_destroyed');
    expect(fields(swarm.tasks[0])).toBe(
      'elapsed_ms exit_code name stderr stdout success timed_out workspace_id',
    );
    expect(swarm.tasks[0]!.stdout).toMatch(/^ready\nall own\n1\n/);
    // The worker is gone; what was cut off is kept where it can still be read.
    const rest = /read on with file_read workspace_id=(\S+) path=(\S+) offset=50\]/.exec(
      swarm.tasks[0]!.stdout,
    )!;
    expect(
      await agent.ok('file_read', { workspace_id: rest[1], path: rest[2], offset: 23_890 }),
    ).toMatchObject({ content: expect.stringMatching(/4999\n5000\n$/) });
    await agent.ok('workspace_stop', { workspace_id: gold });
    const again = await agent.ok<{ tasks: { stdout: string }[] }>('swarm_run', {
      golden_workspace: gold,
      tasks: [{ name: 'a', command: 'seq 5000' }],
      max_output_bytes: 100,
    });
    expect(again.tasks[0]!.stdout).toMatch(/the rest went with the worker: raise max_output_bytes/);
    await agent.ok('workspace_destroy', { workspace_id: gold });
  });

  test('of the shared notes have the fields and defaults that agents know', async () => {
    const folder = fresh('notes');
    const path = `${folder}/a.md`;
    await answer('vault_write', { path, content: '---\nstatus: open\n---\nbody one\n' }, 'path bytes');
    await agent.ok('vault_write', { path, content: 'body two\n', mode: 'append' });
    expect(await answer('vault_read', { path }, 'path content')).toMatchObject({
      content: '---\nstatus: open\n---\nbody one\nbody two\n',
    });
    expect(await answer('vault_read', { path, format: 'json' }, 'path content frontmatter')).toMatchObject({
      frontmatter: { status: 'open' },
    });
    const search = { query: 'body', path_prefix: folder };
    const found = await answer<{ results: Answer[] }>('vault_search', search, 'query result_count results');
    expect(fields(found.results[0])).toBe('context line line_number path');
    expect(await agent.ok('vault_search', { ...search, max_results: 1 })).toMatchObject({
      result_count: 1,
      note: expect.stringContaining('raise max_results'),
    });
    expect(await agent.ok('vault_search', { ...search, query: 'b.*two', regex: true })).toMatchObject({
      results: [{ path, line_number: 5, line: 'body two' }],
    });
    expect(await agent.ok('vault_search', { ...search, tag: 'none' })).toMatchObject({ result_count: 0 });
    const listed = await answer<{ entries: Answer[] }>(
      'vault_list',
      { path: folder },
      'path recursive count entries',
    );
    expect(fields(listed.entries[0])).toBe('is_dir modified path size');
    expect(
      await answer(
        'vault_frontmatter',
        { path, action: 'set', key: 'owner', value: 'ann' },
        'path frontmatter',
      ),
    ).toMatchObject({ frontmatter: { status: 'open', owner: 'ann' } });
    await agent.ok('vault_frontmatter', { path, action: 'delete', key: 'owner' });
    expect(await agent.ok('vault_frontmatter', { path })).toEqual({ path, frontmatter: { status: 'open' } });
    expect(await answer('vault_tags', { path, action: 'add', tag: 'x' }, 'path tags')).toEqual({
      path,
      tags: ['x'],
    });
    expect(await agent.ok('vault_tags', {})).toEqual({ path: null, tags: ['x'] });
    expect(await agent.ok('vault_tags', { path, action: 'remove', tag: 'x' })).toMatchObject({ tags: [] });
    expect(
      await answer('vault_replace', { path, search: 'body', replace: 'text' }, 'path replacements'),
    ).toMatchObject({ replacements: 2 });
    const batch = await answer<{ notes: Answer[] }>(
      'vault_batch_read',
      { paths: [path, 'none.md'], include_frontmatter: false },
      'notes',
    );
    expect(batch.notes.map(fields)).toEqual(['content path', 'error path']);
    const stats = await answer<{ recent_files: Answer[] }>(
      'vault_stats',
      {},
      'total_notes total_folders total_size_bytes recent_files',
    );
    expect(stats.recent_files[0]).toMatchObject({ path });
    await agent.ok('vault_write', { path: `${folder}/b.md`, content: 'b' });
    const move = { path, new_path: `${folder}/b.md` };
    expect(await agent.refused('vault_move', move)).toMatch(/name_taken.*\nNext: .*overwrite/);
    expect(await answer('vault_move', { ...move, overwrite: true }, 'moved from to')).toEqual({
      moved: true,
      from: path,
      to: move.new_path,
    });
    expect(await agent.refused('vault_delete', { path: move.new_path })).toContain('confirm');
    await answer('vault_delete', { path: move.new_path, confirm: true }, 'path deleted');
  });

  test('of projects have what a model can use: an agent tries another one out, and gets a verdict', async () => {
    const made = await answer<{ id: string }>(
      'project_create',
      { name: 'Leads', cap_usd: 20 },
      'id name workspace',
    );
    const project = made.id;
    const script = `printf '{"cost_usd":1,"revenue_usd":5}' > report.json`;
    const deployed = await answer<{ id: string }>(
      'project_deploy',
      { project, type: 'scripted', name: 'finder', config: { script } },
      'id name type status',
    );
    interface Info {
      readonly metrics: { readonly revenue_usd: number };
      readonly agents: readonly {
        readonly id: string;
        readonly last_run: { readonly exit: string } | null;
      }[];
    }
    const info = (): Promise<Info> =>
      answer<Info>('project_info', { project }, 'id name status metrics agents experiments');
    await eventually('it has earned', async () => (await info()).metrics.revenue_usd === 5);
    await eventually('it has ended', async () => (await info()).agents[0]?.last_run?.exit === 'ok');
    const numbers = 'cost_usd revenue_usd profit_usd runs failed_runs';
    const revenue = { project, name: 'revenue', value: 2, key: 'invoice-1' };
    for (const _again of [1, 2])
      expect(await answer('project_report', revenue, numbers)).toMatchObject({ revenue_usd: 7 });
    expect(
      await answer('project_evaluate', { project }, 'recommendation all_passed criteria promotable digest'),
    ).toMatchObject({
      recommendation: 'STRONGLY_RECOMMEND',
      promotable: [{ id: deployed.id, name: 'finder' }],
    });
    expect(await answer('project_list', {}, 'projects')).toMatchObject({
      projects: [{ id: project, name: 'Leads', status: 'active' }],
    });
    expect(await agent.refused('project_info', { project: 'nobody' })).toContain('project_list');
  });

  test('of runs have what a model can use: an agent starts another one, tells it something, and hears how it ended', async () => {
    const about = 'run_id name state outcome reason agent workspace_id last_step';
    const run = fresh('run');
    await answer('run_start', { name: run, task: 'wait', agent: 'command', command: 'sleep 600' }, about);
    const shown = (): Promise<Answer> =>
      answer('run_show', { run }, `${about} working waiting_messages steps happened next`);
    await eventually('it works', async () => (await shown()).last_step === 1);
    await answer('run_tell', { run, text: 'hurry' }, 'message_id number state');
    await answer('run_rewind', { run, step: 1 }, about);
    const fork = await answer<{ name: string }>('run_fork', { run, step: 1 }, about);
    for (const name of [run, fork.name]) {
      expect(await answer('run_interrupt', { run: name, stop: true }, about)).toMatchObject({
        outcome: 'cancelled',
      });
      await answer('run_result', { run: name }, 'outcome reason text exit_code');
    }
    const { runs } = await answer<{ runs: Answer[] }>('run_list', {}, 'runs');
    expect(fields(runs[0])).toBe(`${about} task`.split(' ').sort().join(' '));
    for (const name of [fork.name, run]) await daemon.client.runs.remove(name);
  });

  test('were those of every tool there is', async () => {
    const { tools } = await agent.client.listTools();
    // These two need a registry: images.test.ts has one.
    for (const name of ['image_pull', 'image_push']) answered.add(name);
    expect([...answered].sort()).toEqual(tools.map((tool) => tool.name).sort());
  });
});
