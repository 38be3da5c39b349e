import { agentNameSchema, type Run, type RunMessage, refSchema, startRunSchema } from '@coppice/protocol';
import { z } from 'zod';
import { additive, defineTool, outward, readOnly, replacing, type Tool, unbounded } from '../tool.ts';

const run = refSchema.describe('Name or id of the run.');
const unknownRun = { not_found: 'Call run_list to see the runs.' };

const runOutput = z.object({
  run_id: z.string(),
  name: z.string(),
  state: z.string(),
  outcome: z.string().nullable(),
  reason: z.string(),
  agent: z.string(),
  workspace_id: z.string().nullable(),
  last_step: z.number(),
});
const runView = ({ id, name, state, outcome, reason, agent, sandbox_id, last_step }: Run) => ({
  run_id: id,
  name,
  state,
  outcome,
  reason,
  agent,
  workspace_id: sandbox_id,
  last_step,
});

const messageOutput = z.object({ message_id: z.string(), number: z.number(), state: z.string() });
const messageView = ({ id, number, state }: RunMessage) => ({ message_id: id, number, state });

const shownTask = 200;
const shownText = 400;
const mostEntries = 40;

const start = defineTool({
  name: 'run_start',
  title: 'Start an agent on a task',
  description:
    'Starts another agent in a workspace of its own and returns at once; run_show says how it goes. Do not use it for one command (exec).',
  actions: ['startRun'],
  annotations: outward(additive),
  input: z.strictObject({
    task: startRunSchema.shape.task.describe('What it is to do.'),
    agent: agentNameSchema
      .default('scripted')
      .describe(
        'codex, claude, goose, pi, …; `scripted` plays one without a model, `command` is any program.',
      ),
    command: z.string().min(1).max(131_072).optional().describe('Shell command line, for `command` only.'),
    name: startRunSchema.shape.name.describe('Of the run.'),
    model: startRunSchema.shape.model.describe('Default: that of the agent.'),
    repo_url: z.string().max(2048).optional().describe('Repository to clone first; the agent works in it.'),
    image: startRunSchema.shape.image.describe('Image of the new workspace.'),
    timeout_secs: startRunSchema.shape.timeout_s.describe('The run fails when it works for longer.'),
  }),
  output: runOutput,
  next: { name_taken: 'Choose another name, or leave it out.' },
  run: async (context, { repo_url, timeout_secs, ...body }) =>
    runView(
      await context.call('startRun', {
        body: {
          ...body,
          ...(repo_url === undefined ? {} : { repo: { url: repo_url } }),
          ...(timeout_secs === undefined ? {} : { timeout_s: timeout_secs }),
        },
      }),
    ),
});

const list = defineTool({
  name: 'run_list',
  title: 'List runs',
  description:
    'Lists agents at work and those that have ended, newest first. Do not use it to see what one did (run_show).',
  actions: ['listRuns'],
  annotations: readOnly,
  input: z.strictObject({
    limit: z.int().min(1).max(100).default(20).describe('How many.'),
  }),
  output: z.object({ runs: z.array(runOutput.extend({ task: z.string() })) }),
  run: async (context, { limit }) => {
    const { items } = await context.call('listRuns', { query: { limit: String(limit) } });
    return { runs: items.map((each) => ({ ...runView(each), task: each.task.slice(0, shownTask) })) };
  },
});

const show = defineTool({
  name: 'run_show',
  title: 'Show what an agent did',
  description:
    'Shows the state of a run, its steps, and what its agent did, repetitions folded. Pass `next` as `after` to read on. Do not call it again at once: agents take minutes.',
  actions: ['getRun', 'listSteps', 'getTrajectory'],
  annotations: readOnly,
  input: z.strictObject({
    run,
    after: z.int().min(0).default(0).describe('Only what happened after this event.'),
  }),
  output: runOutput.extend({
    working: z.boolean(),
    waiting_messages: z.number(),
    steps: z.array(z.object({ number: z.number(), title: z.string() })),
    happened: z.array(z.string()),
    next: z.number().nullable(),
  }),
  next: unknownRun,
  run: async (context, input) => {
    const params = { run: input.run };
    const [found, steps, trajectory] = await Promise.all([
      context.call('getRun', { params }),
      context.call('listSteps', { params }),
      context.call('getTrajectory', {
        params,
        query: { after: String(input.after), limit: String(mostEntries) },
      }),
    ]);
    return {
      ...runView(found),
      working: found.working,
      waiting_messages: found.waiting_messages,
      steps: steps.items
        .filter(({ snapshot_id }) => snapshot_id !== null)
        .slice(-mostEntries)
        .map(({ number, title }) => ({ number, title })),
      happened: trajectory.entries.map(
        ({ event: { seq, type, data }, count }) =>
          `${seq} ${type}${count > 1 ? ` (${count} times)` : ''} ${JSON.stringify(data).slice(0, shownText)}`,
      ),
      next: trajectory.next,
    };
  },
});

const tell = defineTool({
  name: 'run_tell',
  title: 'Tell an agent something',
  description:
    'Sends a message to an agent while it works. run_show says whether messages still wait. Do not use it after the end of a run (run_rewind).',
  actions: ['tellRun'],
  annotations: additive,
  input: z.strictObject({
    run,
    text: z.string().min(1).max(16_384).describe('What it is told.'),
    urgency: z
      .enum(['queue', 'steer', 'now'])
      .default('steer')
      .describe('queue: after its turn. steer: into it. now: interrupts the turn if it has to.'),
  }),
  output: messageOutput,
  next: { ...unknownRun, wrong_state: 'It has ended: call run_rewind with a message, or run_fork.' },
  run: async (context, { run: ref, ...body }) =>
    messageView(await context.call('tellRun', { params: { run: ref }, body })),
});

const interrupt = defineTool({
  name: 'run_interrupt',
  title: 'Interrupt an agent, or stop its run',
  description:
    'Ends the turn that an agent works on and every process of it. With stop, ends the whole run. Do not use it to correct an agent (run_tell).',
  actions: ['interruptRun', 'stopRun'],
  annotations: replacing,
  input: z.strictObject({
    run,
    stop: z.boolean().default(false).describe('End the run; its workspace and steps stay.'),
    reason: z.string().min(1).max(1024).default('interrupted').describe('For the record.'),
  }),
  output: runOutput,
  next: unknownRun,
  run: async (context, { run: ref, stop, reason }) =>
    runView(
      await context.call(stop ? 'stopRun' : 'interruptRun', { params: { run: ref }, body: { reason } }),
    ),
});

const rewind = defineTool({
  name: 'run_rewind',
  title: 'Rewind a run to a step',
  description:
    'Puts files and conversation of a run back to a step (run_show lists them) and goes on from there, also after its end. Do not use it to try something else beside it (run_fork).',
  actions: ['rewindRun'],
  annotations: unbounded,
  input: z.strictObject({
    run,
    step: z.int().min(0).describe('Number of the step.'),
    message: z.string().min(1).max(16_384).optional().describe('What the agent is told then.'),
  }),
  output: runOutput,
  next: { not_found: 'Call run_show to see the steps.' },
  run: async (context, { run: ref, step, message }) =>
    runView(
      await context.call('rewindRun', {
        params: { run: ref },
        body: { to: step, ...(message === undefined ? {} : { message }) },
      }),
    ),
});

const fork = defineTool({
  name: 'run_fork',
  title: 'Fork a run from a step',
  description:
    'Starts another run from a step of this one, in a workspace of its own; this one goes on as it is. Do not use it to copy files alone (workspace_fork).',
  actions: ['forkRun'],
  annotations: additive,
  input: z.strictObject({
    run,
    step: z.int().min(0).optional().describe('Number of the step; default: the last.'),
    message: z.string().min(1).max(16_384).optional().describe('What its agent is told.'),
    name: startRunSchema.shape.name.describe('Of the new run.'),
  }),
  output: runOutput,
  next: { not_found: 'Call run_show to see the steps.' },
  run: async (context, { run: ref, step, ...body }) =>
    runView(
      await context.call('forkRun', {
        params: { run: ref },
        body: { ...body, ...(step === undefined ? {} : { from: step }) },
      }),
    ),
});

const result = defineTool({
  name: 'run_result',
  title: 'Get the result of a run',
  description:
    'What came of a run that has ended: outcome, reason, and the last thing that its agent said. Do not use it while it works (run_show).',
  actions: ['getRunResult'],
  annotations: readOnly,
  input: z.strictObject({ run }),
  output: z.object({
    outcome: z.string(),
    reason: z.string(),
    text: z.string(),
    exit_code: z.number().nullable(),
  }),
  next: { ...unknownRun, wrong_state: 'It has not ended: call run_show.' },
  run: async (context, { run: ref }) => {
    const { text, ...rest } = await context.call('getRunResult', { params: { run: ref } });
    return { ...rest, text: text.slice(-16_000) };
  },
});

export const runTools: readonly Tool[] = [start, list, show, tell, interrupt, rewind, fork, result];
