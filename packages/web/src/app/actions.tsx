import { signal } from '@preact/signals';
import { client, mayChange } from './session.ts';
import { hrefOf, lost, saw } from './store.ts';
import { json, quoted } from './text.ts';

export type Values = Readonly<Record<string, string>>;

/** The same action for a terminal, for any HTTP client and for a program. */
export interface Recipe {
  /** Calls that come before the last one. */
  readonly first?: readonly { readonly method: string; readonly path: string }[];
  readonly cli: string;
  readonly method: string;
  readonly path: string;
  readonly body?: unknown;
  readonly sdk: string;
}

interface Field {
  readonly name: string;
  readonly label: string;
  readonly kind: 'text' | 'number' | 'flag' | 'choice';
  readonly value?: string;
  readonly options?: readonly string[];
  readonly placeholder?: string;
}

export interface Action {
  readonly title: string;
  /** What it does and what it costs, before it is done. */
  readonly effect: string;
  readonly fields?: readonly Field[];
  /** Has to be typed before it is done: it cannot be undone. */
  readonly confirm?: string;
  readonly verb: string;
  readonly recipe: (values: Values) => Recipe;
  /** Where to go afterwards. */
  readonly run: (values: Values) => Promise<string | undefined>;
}

/** What is asked about now; the dialog shows it. */
export const asked = signal<Action | undefined>(undefined);

export const ask = (action: Action): void => {
  asked.value = action;
};

/** What an action is about. */
export interface Named {
  readonly id: string;
  readonly name: string;
}

export const forkFields: readonly Field[] = [
  { name: 'count', label: 'How many', kind: 'number', value: '1' },
  { name: 'name', label: 'Name', kind: 'text', placeholder: 'chosen for you' },
];
export const forkBody = ({ count = '1', name = '', memory = '' }: Values) => ({
  ...(Number(count) > 1 ? { count: Number(count) } : {}),
  ...(name === '' ? {} : Number(count) > 1 ? { name_prefix: name } : { name }),
  ...(memory === 'yes' ? { memory: true } : {}),
});
export const forkWords = ({ count = '1', name = '', memory = '' }: Values): string =>
  [
    ...(name === '' ? [] : Number(count) > 1 ? [`--prefix ${quoted(name)}`] : [quoted(name)]),
    ...(Number(count) > 1 ? [`--count ${count}`] : []),
    ...(memory === 'yes' ? ['--memory'] : []),
  ]
    .map((word) => ` ${word}`)
    .join('');

const forkSandbox = (sandbox: Named): Action => ({
  title: `Fork ${sandbox.name}`,
  effect: 'Grows sandboxes from its files as they are now. They share everything until one of them writes.',
  fields: [...forkFields, { name: 'memory', label: 'With the memory of its processes', kind: 'flag' }],
  verb: 'Fork',
  recipe: (values) => ({
    cli: `coppice fork ${quoted(sandbox.name)}${forkWords(values)}`,
    method: 'POST',
    path: `/v1/sandboxes/${sandbox.id}/fork`,
    body: forkBody(values),
    sdk: `await coppice.sandboxes.at('${sandbox.id}').fork(${json(forkBody(values))});`,
  }),
  run: async (values) => {
    const { sandboxes, failures } = await client().sandboxes.at(sandbox.id).fork(forkBody(values));
    for (const { info } of sandboxes) if (info !== undefined) saw(info);
    if (failures[0] !== undefined)
      throw new Error(`${failures.length} did not come to be: ${failures[0].message}`);
    return sandboxes.length === 1 ? hrefOf(sandboxes[0]!.id) : undefined;
  },
});

const snapshotBody = ({ name = '', note = '', memory = '' }: Values) => ({
  ...(name === '' ? {} : { name }),
  ...(note === '' ? {} : { note }),
  ...(memory === 'yes' ? { memory: true } : {}),
});
export const takeSnapshot = (sandbox: Named): Action => ({
  title: `Snapshot ${sandbox.name}`,
  effect: 'Keeps its files as they are now. It stands still for an instant and goes on.',
  fields: [
    { name: 'name', label: 'Name', kind: 'text', placeholder: 'chosen for you' },
    { name: 'note', label: 'Note', kind: 'text' },
    { name: 'memory', label: 'With the memory of its processes', kind: 'flag' },
  ],
  verb: 'Snapshot',
  recipe: (values) => ({
    cli: `coppice ${values.memory === 'yes' ? 'checkpoint' : 'snapshot'} ${quoted(sandbox.name)}${values.name ? ` ${quoted(values.name)}` : ''}${values.note ? ` --note ${quoted(values.note)}` : ''}`,
    method: 'POST',
    path: `/v1/sandboxes/${sandbox.id}/snapshots`,
    body: snapshotBody(values),
    sdk: `await coppice.sandboxes.at('${sandbox.id}').snapshot(${json(snapshotBody(values))});`,
  }),
  run: async (values) => {
    await client().sandboxes.at(sandbox.id).snapshot(snapshotBody(values));
    return undefined;
  },
});

type Verb = 'start' | 'stop' | 'pause' | 'resume';
const effects: Readonly<Record<Verb, string>> = {
  start: 'Starts it on its disk as it is.',
  stop: 'Ends its processes. Its disk stays.',
  pause: 'Its memory goes to disk and no process is left. It goes on where it was when it is used again.',
  resume: 'It goes on where it was.',
};
const change = (verb: Verb, sandbox: Named): Action => ({
  title: `${verb[0]!.toUpperCase()}${verb.slice(1)} ${sandbox.name}`,
  effect: effects[verb],
  verb: `${verb[0]!.toUpperCase()}${verb.slice(1)}`,
  recipe: () => ({
    cli: `coppice ${verb} ${quoted(sandbox.name)}`,
    method: 'POST',
    path: `/v1/sandboxes/${sandbox.id}/${verb}`,
    sdk: `await coppice.sandboxes.at('${sandbox.id}').${verb}();`,
  }),
  run: async () => {
    const { info } = await client().sandboxes.at(sandbox.id)[verb]();
    if (info !== undefined) saw(info);
    return undefined;
  },
});

export const destroy = (sandbox: Named): Action => ({
  title: `Destroy ${sandbox.name}`,
  effect: 'Ends its processes and deletes its disk. Its snapshots stay, unless you say otherwise.',
  fields: [{ name: 'snapshots', label: 'Delete its snapshots too', kind: 'flag' }],
  confirm: sandbox.name,
  verb: 'Destroy',
  recipe: ({ snapshots }) => ({
    cli: `coppice rm ${quoted(sandbox.name)}${snapshots === 'yes' ? ' --snapshots' : ''}`,
    method: 'DELETE',
    path: `/v1/sandboxes/${sandbox.id}${snapshots === 'yes' ? '?snapshots=delete' : ''}`,
    sdk: `await coppice.sandboxes.at('${sandbox.id}').destroy(${snapshots === 'yes' ? "{ snapshots: 'delete' }" : ''});`,
  }),
  run: async ({ snapshots }) => {
    const left = await client()
      .sandboxes.at(sandbox.id)
      .destroy(snapshots === 'yes' ? { snapshots: 'delete' } : {});
    lost(sandbox.id);
    const kept = snapshots === 'yes' ? left.snapshots : [];
    if (kept.length > 0)
      throw new Error(
        `${sandbox.name} is gone. Some of its snapshots stay: ${kept.map(({ name, reason }) => `${name} (${reason})`).join(', ')}`,
      );
    return location.pathname.startsWith('/sandboxes/') ? '/' : undefined;
  },
});

const createBody = ({ name = '', image = '' }: Values) => ({
  ...(name === '' ? {} : { name }),
  ...(image === '' || image === 'default' ? {} : { image }),
});
export const create = (images: readonly string[]): Action => ({
  title: 'New sandbox',
  effect: 'A computer of its own, without network until you allow it.',
  fields: [
    { name: 'name', label: 'Name', kind: 'text', placeholder: 'chosen for you' },
    { name: 'image', label: 'Image', kind: 'choice', value: 'default', options: ['default', ...images] },
  ],
  verb: 'Create',
  recipe: (values) => {
    const body = createBody(values);
    return {
      cli: `coppice create${body.name === undefined ? '' : ` ${quoted(body.name)}`}${body.image === undefined ? '' : ` --image ${quoted(body.image)}`}`,
      method: 'POST',
      path: '/v1/sandboxes',
      body,
      sdk: `await coppice.sandboxes.create(${json(body)});`,
    };
  },
  run: async (values) => {
    const sandbox = await client().sandboxes.create(createBody(values));
    if (sandbox.info !== undefined) saw(sandbox.info);
    return hrefOf(sandbox.id);
  },
});

/** What can be done with a sandbox in the state that it is in; the keys are those of every page. */
export const actionsOf = (
  sandbox: Named & { readonly state: string | null },
): { key?: string; title: string; action: Action }[] => {
  const { state } = sandbox;
  if (!mayChange()) return [];
  return [
    { key: 'f', title: 'Fork', action: forkSandbox(sandbox) },
    { key: 's', title: 'Snapshot', action: takeSnapshot(sandbox) },
    ...(state === 'running'
      ? [
          { title: 'Pause', action: change('pause', sandbox) },
          { title: 'Stop', action: change('stop', sandbox) },
        ]
      : []),
    ...(state === 'paused' ? [{ title: 'Resume', action: change('resume', sandbox) }] : []),
    ...(state === 'stopped' || state === 'failed'
      ? [{ title: 'Start', action: change('start', sandbox) }]
      : []),
    { title: 'Destroy', action: destroy(sandbox) },
  ];
};
