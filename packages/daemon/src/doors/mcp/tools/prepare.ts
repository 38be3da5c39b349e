import {
  goldenName,
  imageRefSchema,
  nameSchema,
  type PrepareEvent,
  prepareSandboxSchema,
} from '@coppice/protocol';
import { z } from 'zod';
import { commandLine, timeoutSecs } from '../fields.ts';
import { lastEvent } from '../last-event.ts';
import { defineTool, outward, settling } from '../tool.ts';
import { advised } from './git.ts';

export const prepare = defineTool({
  name: 'workspace_prepare',
  title: 'Prepare a golden workspace',
  description:
    'Creates a workspace, clones a repository into /workspace, runs set-up commands and snapshots the result as “golden”, all in one call; called again with the same name it answers with what is there. Use it before workspace_batch_fork or swarm_run. Do not use it for a workspace you work in yourself (workspace_create).',
  actions: ['prepareSandbox'],
  annotations: outward(settling),
  input: z.strictObject({
    name: nameSchema.describe('Name of the workspace.'),
    base_image: imageRefSchema.optional().describe('Image to start from; image_list names them.'),
    git_url: prepareSandboxSchema.shape.git_url.describe('Repository to clone.'),
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
  next: { name_taken: `Make one with snapshot_create, name ${goldenName}; or choose another name.` },
  run: async (context, { base_image: image, setup_commands: commands, timeout_secs: secs, ...rest }) => {
    const body = { ...rest, image, commands, timeout_ms: Math.ceil(secs * 1000) };
    const { sandbox, snapshot, reused } = await context.during(`preparing ${rest.name}`, () =>
      advised(
        lastEvent<PrepareEvent, 'prepared'>(
          context.call('prepareSandbox', { body }),
          'prepared',
          ({ message }) => context.report(message),
        ),
      ),
    );
    return {
      workspace_id: sandbox.id,
      name: sandbox.name,
      snapshot_name: snapshot.name,
      snapshot_id: snapshot.id,
      reused_existing: reused,
      ip: sandbox.address,
    };
  },
});
