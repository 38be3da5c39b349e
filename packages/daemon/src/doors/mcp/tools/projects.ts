import { deployAgentSchema, projectMetricsSchema, reportMetricSchema } from '@coppice/protocol';
import { z } from 'zod';
import { additive, defineTool, readOnly, type Tool } from '../tool.ts';

const project = z.string().min(1).max(120).describe('Id of the project.');
const next = { not_found: 'Call project_list to see the projects there are.' };
const numbers = projectMetricsSchema.pick({
  cost_usd: true,
  revenue_usd: true,
  profit_usd: true,
  runs: true,
  failed_runs: true,
});

const listOutput = z.object({
  projects: z.array(z.object({ id: z.string(), name: z.string(), status: z.string(), metrics: numbers })),
});
const list = defineTool({
  name: 'project_list',
  title: 'List projects',
  description:
    'Projects in which agents are tried out, with what they cost and brought in. Do not use it for the agents of one (project_info).',
  actions: ['listProjects'],
  annotations: readOnly,
  input: z.strictObject({}),
  output: listOutput,
  run: async (context) => listOutput.parse({ projects: (await context.call('listProjects', {})).items }),
});

const createOutput = z.object({ id: z.string(), name: z.string(), workspace: z.string() });
const create = defineTool({
  name: 'project_create',
  title: 'Create a project',
  description:
    'A place to try agents out, apart from production. Set a cap: it is held. Do not use it for a single task (run_start).',
  actions: ['createProject'],
  annotations: additive,
  input: z.strictObject({
    name: z.string().min(1).max(120).describe('What people call it.'),
    description: z.string().max(4000).default('').describe('What it is to find out.'),
    cap_usd: z.number().min(0).optional().describe('What it may cost in all, in dollars.'),
  }),
  output: createOutput,
  run: async (context, body) => createOutput.parse(await context.call('createProject', { body })),
});

const infoOutput = z.object({
  id: z.string(),
  name: z.string(),
  status: z.string(),
  metrics: numbers,
  agents: z.array(
    z.object({
      id: z.string(),
      name: z.string(),
      type: z.string(),
      status: z.string(),
      metrics: numbers,
      last_run: z.object({ state: z.string(), exit: z.string().nullable(), summary: z.string() }).nullable(),
    }),
  ),
  experiments: z.array(z.object({ id: z.number(), name: z.string(), state: z.string(), said: z.string() })),
});
const info = defineTool({
  name: 'project_info',
  title: 'Look into a project',
  description:
    'A project with its agents, their last runs, its experiments and its numbers. Do not use it to judge one (project_evaluate).',
  actions: ['getProject'],
  annotations: readOnly,
  next,
  input: z.strictObject({ project }),
  output: infoOutput,
  run: async (context, params) => infoOutput.parse(await context.call('getProject', { params })),
});

const deployOutput = z.object({ id: z.string(), name: z.string(), type: z.string(), status: z.string() });
const deploy = defineTool({
  name: 'project_deploy',
  title: 'Deploy an agent into a project',
  description:
    'Starts an agent of a type in a sandbox of its own. Type scripted runs config.script and needs no model. Do not use it outside of a project (run_start).',
  actions: ['deployAgent'],
  annotations: additive,
  next,
  input: z.strictObject({
    project,
    type: deployAgentSchema.shape.type.describe('Type of the agent, such as scripted.'),
    name: z.string().min(1).max(120).optional().describe('What people call it.'),
    config: z.record(z.string(), z.json()).default({}).describe('Parameters of the type.'),
  }),
  output: deployOutput,
  run: async (context, { project: of, ...body }) =>
    deployOutput.parse(await context.call('deployAgent', { params: { project: of }, body })),
});

const report = defineTool({
  name: 'project_report',
  title: 'Report a number of a project',
  description:
    'Books revenue or cost in dollars, or keeps any other metric. Cost of models is measured already: do not report it.',
  actions: ['reportMetric'],
  annotations: additive,
  next,
  input: z.strictObject({
    project,
    name: reportMetricSchema.shape.name.describe('revenue, cost, or a name of your own.'),
    value: z.number().describe('Dollars for revenue and cost.'),
    agent: z.string().min(1).max(120).optional().describe('Id of the agent that it is of.'),
    key: reportMetricSchema.shape.key.describe('The same key again changes nothing.'),
    evidence: z.string().max(4000).optional().describe('Where the number comes from.'),
  }),
  output: numbers,
  run: async (context, { project: of, ...body }) => {
    const call = { params: { project: of }, body: { ...body, source: 'agent:mcp' } };
    return numbers.parse(await context.call('reportMetric', call));
  },
});

const evaluateOutput = z.object({
  recommendation: z.string(),
  all_passed: z.boolean(),
  criteria: z.array(z.object({ name: z.string(), value: z.number(), passed: z.boolean() })),
  promotable: z.array(z.object({ id: z.string(), name: z.string() })),
  digest: z.string(),
});
const evaluate = defineTool({
  name: 'project_evaluate',
  title: 'Evaluate a project',
  description:
    'Says whether a project is worth promoting and which of its agents would go. Do not expect it to promote: a person confirms the digest.',
  actions: ['evaluateProject'],
  annotations: additive,
  next,
  input: z.strictObject({ project }),
  output: evaluateOutput,
  run: async (context, params) =>
    evaluateOutput.parse(await context.call('evaluateProject', { params, body: {} })),
});

export const projectTools: readonly Tool[] = [list, create, info, deploy, report, evaluate];
