import { CoppiceError, imageRefSchema, nameSchema, type Sandbox, type Snapshot } from '@coppice/protocol';
import { z } from 'zod';
import { invalidInput } from '../../problem.ts';
import { runCommand } from '../command-result.ts';
import { commandLine, timeoutSecs, workDirectory } from '../fields.ts';
import { defineTool, outward, settling } from '../tool.ts';
import type { ToolContext } from '../tool-context.ts';
import { gitClone } from './git.ts';

const goldenName = 'golden';

const existing = async (
  context: ToolContext,
  name: string,
): Promise<{ sandbox: Sandbox; golden: Snapshot | undefined } | undefined> => {
  const sandbox = (await context.visible()).find(
    (candidate) => candidate.name === name && candidate.project === context.project,
  );
  if (sandbox === undefined) return undefined;
  const { items: snapshots } = await context.call('listSandboxSnapshots', {
    params: { sandbox: sandbox.id },
  });
  return { sandbox, golden: snapshots.find((snapshot) => snapshot.name === goldenName) };
};

/** Runs one step of the set-up; the first that fails ends it. */
const step = async (
  context: ToolContext,
  id: string,
  command: string,
  timeout_secs: number,
): Promise<void> => {
  context.report(`running ${command.slice(0, 80)}`);
  const { result, timedOut } = await runCommand(context, id, {
    command,
    timeout_secs,
    rest: { otherwise: 'the rest went with the workspace' },
  });
  if (timedOut)
    throw new CoppiceError('timeout', `the set-up command timed out after ${timeout_secs} s: ${command}`, {
      hint: 'Raise timeout_secs; the workspace was removed, so that the next call starts anew.',
      details: { stdout: result.stdout, stderr: result.stderr },
    });
  if (result.exit_code !== 0)
    throw new CoppiceError(
      'conflict',
      `the set-up command ended with exit code ${result.exit_code}: ${command}`,
      {
        hint: 'Correct the command and call workspace_prepare again; the workspace was removed.',
        details: { stdout: result.stdout, stderr: result.stderr },
      },
    );
};

export const prepare = defineTool({
  name: 'workspace_prepare',
  title: 'Prepare a golden workspace',
  description:
    'Creates a workspace, clones a repository into /workspace, runs set-up commands and snapshots the result as “golden”, all in one call; called again with the same name it answers with what is there. Use it before workspace_batch_fork or swarm_run. Do not use it for a workspace you work in yourself (workspace_create).',
  actions: ['createSandbox', 'exec', 'writeFile', 'createSnapshot', 'listSandboxSnapshots', 'destroySandbox'],
  annotations: outward(settling),
  input: z.strictObject({
    name: nameSchema.describe('Name of the workspace.'),
    base_image: imageRefSchema.optional().describe('Image to start from; image_list names them.'),
    git_url: z.string().min(1).max(1024).optional().describe('Repository to clone.'),
    setup_commands: z
      .array(commandLine)
      .max(100)
      .default([])
      .describe('Run in order; the first that fails ends it.'),
    timeout_secs: timeoutSecs(300).describe('For each command.'),
    allow_internet: z.boolean().default(false).describe('During the set-up and after it.'),
  }),
  output: z.object({
    workspace_id: z.string(),
    name: z.string(),
    snapshot_name: z.string(),
    snapshot_id: z.string(),
    reused_existing: z.boolean(),
    ip: z.string().nullable(),
  }),
  // A second call with the name waits for the first, and answers with what that one made.
  run: (context, input) =>
    context.during(`preparing ${input.name}`, () =>
      context.preparing.exclusive(input.name, async () => {
        context.signal.throwIfAborted();
        const found = await existing(context, input.name);
        if (found === undefined) return build(context, input);
        const { id } = context.ownSandbox(found.sandbox.id);
        if (found.golden === undefined)
          throw new CoppiceError(
            'name_taken',
            `workspace ${input.name} exists and has no snapshot ${goldenName}`,
            { hint: `Make one with snapshot_create, name ${goldenName}; or choose another name.` },
          );
        return answer(id, input.name, found.golden, true, found.sandbox.address);
      }),
    ),
});

const build = async (
  context: ToolContext,
  input: {
    name: string;
    base_image?: string | undefined;
    git_url?: string | undefined;
    setup_commands: string[];
    timeout_secs: number;
    allow_internet: boolean;
  },
) => {
  const body = {
    name: input.name,
    image: input.base_image,
    labels: context.ownership,
    network: { allow_internet: input.allow_internet },
  };
  const created = await context.withRoom(1, () =>
    context.call('createSandbox', { body }, { progress: ({ message }) => context.report(message) }),
  );
  const params = { sandbox: created.id };
  try {
    if (input.git_url !== undefined) await cloneInto(context, created.id, input.git_url, input.timeout_secs);
    for (const command of input.setup_commands) await step(context, created.id, command, input.timeout_secs);
    context.signal.throwIfAborted();
    const golden = await context.call('createSnapshot', { params, body: { name: goldenName } });
    return answer(created.id, created.name, golden, false, created.address);
  } catch (error) {
    // Half a set-up under the name would stand in the way of the next try.
    await context.call('destroySandbox', { params });
    throw error;
  }
};

const cloneInto = async (
  context: ToolContext,
  id: string,
  url: string,
  timeoutSecs: number,
): Promise<void> => {
  context.report('cloning');
  const given = gitClone.input.safeParse({
    workspace_id: id,
    url,
    path: workDirectory,
    timeout_secs: timeoutSecs,
  });
  if (!given.success) throw invalidInput(given.error, 'git_url');
  await gitClone.run(context, given.data);
};

const answer = (id: string, name: string, golden: Snapshot, reused: boolean, ip: string | null) => ({
  workspace_id: id,
  name,
  snapshot_name: golden.name,
  snapshot_id: golden.id,
  reused_existing: reused,
  ip,
});
