import type {
  AgentTypeInfo,
  ProductionAgent,
  Project,
  ProjectAgent,
  ProjectEvaluation,
} from '@coppice/protocol';
import type { Action, Named } from '../app/actions.tsx';
import { client } from '../app/session.ts';
import { generation } from '../app/store.ts';
import { count, json, quoted } from '../app/text.ts';

export const hrefOf = (id: string): string => `/projects/${encodeURIComponent(id)}`;

/** Events do not tell of every change of a project: after one of ours the page asks again. */
const changed = async (work: Promise<unknown>, href?: string): Promise<string | undefined> => {
  await work;
  generation.value += 1;
  return href;
};

export const createProject = (): Action => ({
  title: 'New project',
  effect: 'A place to try agents. Nothing in it reaches production until you promote it.',
  fields: [
    { name: 'name', label: 'Name', kind: 'text' },
    { name: 'description', label: 'What it is to show', kind: 'text' },
    { name: 'cap', label: 'Most it may cost, in dollars', kind: 'text', placeholder: 'no limit' },
  ],
  verb: 'Create',
  recipe: ({ name = '', description = '', cap = '' }) => {
    const body = createBody({ name, description, cap });
    return {
      cli: `coppice project create ${quoted(name)}${description === '' ? '' : ` --description ${quoted(description)}`}${cap === '' ? '' : ` --cap ${quoted(cap)}`}`,
      method: 'POST',
      path: '/v1/projects',
      body,
      sdk: `await coppice.projects.create(${json(body)});`,
    };
  },
  run: async (values) => {
    const { id } = await client().projects.create(createBody(values));
    generation.value += 1;
    return hrefOf(id);
  },
});

const createBody = ({ name = '', description = '', cap = '' }: Readonly<Record<string, string>>) => ({
  name,
  ...(description === '' ? {} : { description }),
  ...(cap === '' ? {} : { cap_usd: Number(cap) }),
});

const isJson = (text: string): boolean => {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return text === '';
  }
};

const configOf = (text: string): Record<string, never> => {
  if (!isJson(text)) throw new Error('The configuration is not JSON. For example: {"script": "echo hello"}');
  return JSON.parse(text);
};

export const deployAgent = (project: Named, types: readonly AgentTypeInfo[]): Action => {
  const bodyOf = ({ type = '', name = '', config = '' }: Readonly<Record<string, string>>) => ({
    type,
    ...(name === '' ? {} : { name }),
    ...(config === '' ? {} : { config: configOf(config) }),
  });
  return {
    title: `Deploy an agent to ${project.name}`,
    effect: 'The agent runs at once, in a sandbox of its own, and again on the schedule of its type.',
    fields: [
      {
        name: 'type',
        label: 'Type',
        kind: 'choice',
        value: types[0]?.name ?? '',
        options: types.map(({ name }) => name),
      },
      { name: 'name', label: 'Name', kind: 'text', placeholder: 'chosen for you' },
      { name: 'config', label: 'Configuration, as JSON', kind: 'text', placeholder: '{}' },
    ],
    verb: 'Deploy',
    recipe: (values) => {
      const { type = '', name = '', config = '' } = values;
      return {
        cli: `coppice project deploy ${project.id} ${quoted(type)}${name === '' ? '' : ` --name ${quoted(name)}`}${config === '' ? '' : ` --config ${quoted(config)}`}`,
        method: 'POST',
        path: `/v1/projects/${project.id}/agents`,
        body: isJson(config) ? bodyOf(values) : { type },
        sdk: `await coppice.projects.deploy('${project.id}', { type: ${JSON.stringify(type)}${config === '' ? '' : `, config: ${config}`} });`,
      };
    },
    run: (values) => changed(client().projects.deploy(project.id, bodyOf(values))),
  };
};

const agentWords = {
  pause: { status: 'paused', effect: 'It starts no new run. A run that goes on is ended.' },
  resume: { status: 'active', effect: 'It runs again, on its schedule.' },
  kill: {
    status: 'killed',
    effect: 'Its run ends and it never runs again. What it cost and brought in stays.',
  },
} as const;

const titled = (word: string): string => word[0]!.toUpperCase() + word.slice(1);

/** What can be done with an agent of a project in the state that it is in. */
export const agentActions = (project: Named, agent: ProjectAgent): { title: string; action: Action }[] => {
  const change = (word: keyof typeof agentWords): { title: string; action: Action } => ({
    title: titled(word),
    action: {
      title: `${titled(word)} ${agent.name}`,
      effect: agentWords[word].effect,
      verb: titled(word),
      ...(word === 'kill' ? { confirm: agent.name } : {}),
      recipe: () => ({
        cli: `coppice project agent ${project.id} ${agent.id} ${word}`,
        method: 'PATCH',
        path: `/v1/projects/${project.id}/agents/${agent.id}`,
        body: { status: agentWords[word].status },
        sdk: `await coppice.projects.changeAgent('${project.id}', '${agent.id}', { status: '${agentWords[word].status}' });`,
      }),
      run: () =>
        changed(client().projects.changeAgent(project.id, agent.id, { status: agentWords[word].status })),
    },
  });
  const runNow: Action = {
    title: `Run ${agent.name} now`,
    effect: 'One more run, beside its schedule.',
    verb: 'Run',
    recipe: () => ({
      cli: `coppice project agent ${project.id} ${agent.id} run`,
      method: 'POST',
      path: `/v1/projects/${project.id}/agents/${agent.id}/runs`,
      sdk: `await coppice.projects.run('${project.id}', '${agent.id}');`,
    }),
    run: () => changed(client().projects.run(project.id, agent.id)),
  };
  if (agent.status === 'killed') return [];
  return agent.status === 'active'
    ? [{ title: 'Run now', action: runNow }, change('pause'), change('kill')]
    : [change('resume'), change('kill')];
};

/** What is promoted is what was read: the digest is of the evaluation on the screen. */
export const promote = (project: Named, { promotable, digest }: ProjectEvaluation): Action => ({
  title: `Promote ${count(promotable.length, 'agent')} of ${project.name}`,
  effect: `${promotable.map(({ name }) => name).join(', ')} will run in production, with its budgets. You can roll each of them back.`,
  verb: 'Promote',
  recipe: () => ({
    cli: `coppice project promote ${project.id} --digest ${digest}`,
    method: 'POST',
    path: `/v1/projects/${project.id}/promotion`,
    body: { digest },
    sdk: `await coppice.projects.promote('${project.id}', '${digest}');`,
  }),
  run: () => changed(client().projects.promote(project.id, digest), '/projects'),
});

export const killProject = (project: Project): Action => ({
  title: `End ${project.name}`,
  effect: 'Its agents are killed and their sandboxes go. What was promoted stays in production.',
  fields: [{ name: 'delete', label: 'Delete everything of it but the ledger', kind: 'flag' }],
  confirm: project.name,
  verb: 'End',
  recipe: ({ delete: all = '' }) => ({
    cli: `coppice project kill ${project.id}${all === 'yes' ? ' --delete' : ''}`,
    method: 'DELETE',
    path: `/v1/projects/${project.id}${all === 'yes' ? '?delete=true' : ''}`,
    sdk: `await coppice.projects.kill('${project.id}'${all === 'yes' ? ', { delete: true }' : ''});`,
  }),
  run: ({ delete: all = '' }) =>
    changed(client().projects.kill(project.id, { delete: all === 'yes' }), '/projects'),
});

export const rollBack = (agent: ProductionAgent): Action => ({
  title: `Roll back ${agent.name}`,
  effect:
    'It leaves production at once. What worked before it works again, and its sandbox is kept as a snapshot.',
  fields: [{ name: 'reason', label: 'Why', kind: 'text', placeholder: 'by hand' }],
  verb: 'Roll back',
  recipe: ({ reason = '' }) => ({
    cli: `coppice project rollback ${agent.id}${reason === '' ? '' : ` --reason ${quoted(reason)}`}`,
    method: 'POST',
    path: `/v1/production/${agent.id}/rollback`,
    body: reason === '' ? {} : { reason },
    sdk: `await coppice.production.rollBack('${agent.id}'${reason === '' ? '' : `, ${JSON.stringify(reason)}`});`,
  }),
  run: ({ reason = '' }) =>
    changed(client().production.rollBack(agent.id, ...(reason === '' ? [] : ([reason] as const)))),
});
