import { CoppiceError, type Sandbox } from '@coppice/protocol';
import { z } from 'zod';
import { ownerOf } from '../../../sessions/sessions.ts';
import { workspaceId } from '../fields.ts';
import { defineTool, readOnly, settling, type Tool } from '../tool.ts';
import type { ToolContext } from '../tool-context.ts';
import { workspaceOf, workspaceSchema } from '../workspace-view.ts';

const adoptedSchema = workspaceSchema.extend({ adopted: z.boolean(), forced: z.boolean() });

const takeOver = async (
  context: ToolContext,
  sandbox: Sandbox,
  force: boolean,
): Promise<z.infer<typeof adoptedSchema>> => {
  const { sandbox: taken, ...outcome } = await context.call('adoptSandbox', {
    params: { sandbox: sandbox.id },
    body: { session: context.session, force },
  });
  return { ...workspaceOf(taken), ...outcome };
};

const adopt = defineTool({
  name: 'workspace_adopt',
  title: 'Take over workspaces',
  description:
    'Makes a workspace this session’s own, so that its tools may change it; without workspace_id, all that no live session has. Do not use it on your own workspaces, and use force only when the user says so: another agent may be at work there.',
  actions: ['adoptSandbox'],
  annotations: settling,
  input: z.strictObject({
    workspace_id: workspaceId.optional().describe('Id or name; all that are free when left out.'),
    force: z.boolean().default(false).describe('Also from a session that called within the last minute.'),
  }),
  output: workspaceSchema.partial().extend({
    adopted: z
      .union([z.boolean(), z.array(adoptedSchema)])
      .describe('Of one: whether it changed hands. Of all: those that did.'),
    forced: z.boolean().optional(),
    adopted_count: z.number().optional(),
    error_count: z.number().optional(),
    errors: z.array(z.object({ workspace_id: z.string(), name: z.string(), error: z.string() })).optional(),
  }),
  next: {
    forbidden: 'Leave it to that session, or call workspace_adopt with its workspace_id and force: true.',
  },
  run: async (context, { workspace_id: ref, force }) => {
    if (ref !== undefined) return takeOver(context, await context.look(ref), force);
    const adopted: z.infer<typeof adoptedSchema>[] = [];
    const errors: { workspace_id: string; name: string; error: string }[] = [];
    for (const sandbox of await context.visible()) {
      if (ownerOf(sandbox) === context.session) continue;
      try {
        adopted.push(await takeOver(context, sandbox, force));
      } catch (error) {
        if (!(error instanceof CoppiceError)) throw error;
        errors.push({ workspace_id: sandbox.id, name: sandbox.name, error: error.message });
      }
    }
    return { adopted_count: adopted.length, adopted, error_count: errors.length, errors };
  },
});

const lastLines = (text: string, count: number): string => {
  const lines = text.split('\n');
  if (lines.length <= count) return text;
  return [
    `[TRUNCATED: the last ${count} of ${lines.length} lines; raise max_lines for more]`,
    ...lines.slice(-count),
  ].join('\n');
};

const logs = defineTool({
  name: 'workspace_logs',
  title: 'What happened to a workspace',
  description:
    'console: the events of the workspace, oldest first; stderr: why it failed, and what its background jobs wrote to stderr. Do not use it for the output of one job (exec_poll), nor of a command (exec answers with it).',
  actions: ['getSandbox', 'listJobs', 'readJob'],
  extras: ['listEvents'],
  annotations: readOnly,
  input: z.strictObject({
    workspace_id: workspaceId,
    log_type: z.enum(['console', 'stderr', 'all']).default('all').describe('Which of the two.'),
    max_lines: z.int().min(1).max(10_000).default(100).describe('The last lines of each.'),
  }),
  output: z.object({ workspace_id: z.string(), console: z.string(), stderr: z.string() }),
  run: async (context, { workspace_id: ref, log_type: type, max_lines: count }) => {
    const sandbox = await context.look(ref);
    return {
      workspace_id: sandbox.id,
      console: type === 'stderr' ? '' : lastLines(await eventLines(context, sandbox.id), count),
      stderr: type === 'console' ? '' : lastLines(await jobErrors(context, sandbox), count),
    };
  },
});

const eventLines = async (context: ToolContext, sandboxId: string): Promise<string> => {
  if (!context.may('listEvents')) return '[events are for admin tokens]';
  const lines: string[] = [];
  for (let after = 0; ; ) {
    const query = { after, limit: 1000, sandbox: sandboxId };
    const { events } = await context.call('listEvents', { query });
    for (const event of events) {
      lines.push(`${event.at} ${event.type}`);
      after = Math.max(after, event.seq);
    }
    if (events.length < 1000) return lines.join('\n');
  }
};

/** Of each job; all that many jobs have kept would be too much at once. */
const jobTailBytes = 262_144;

const jobErrors = async (context: ToolContext, sandbox: Sandbox): Promise<string> => {
  const lines = sandbox.failure === null ? [] : [sandbox.failure];
  if (sandbox.state !== 'running') return lines.join('\n');
  const params = { sandbox: sandbox.id };
  for (const job of (await context.call('listJobs', { params })).items) {
    const cursor = Math.max(job.log_start, job.log_bytes - jobTailBytes);
    const query = { cursor, max_bytes: jobTailBytes };
    const { entries } = await context.call('readJob', { params: { ...params, job: job.id }, query });
    const text = entries.flatMap((entry) => (entry.stream === 'stderr' ? [entry.text] : [])).join('');
    const cut = cursor > job.log_start && text !== '' ? '[only what is new; exec_poll has the rest]\n' : '';
    if (text !== '') lines.push(`job ${job.id}: ${cut}${text.trimEnd()}`);
  }
  return lines.join('\n');
};

export const ownershipTools: readonly Tool[] = [adopt, logs];
