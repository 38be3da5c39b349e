import { signal, useSignal } from '@preact/signals';
import { go } from './router.ts';
import { client, mayChange, noticeSignOut } from './session.ts';
import { hrefOf, lost, saw } from './store.ts';
import { json, quoted } from './text.ts';
import { Copy, Dialog, Failure } from './ui.tsx';

export type Values = Readonly<Record<string, string>>;

/** The same action for a terminal, for any HTTP client and for a program. */
interface Recipe {
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

const asked = signal<Action | undefined>(undefined);

export const ask = (action: Action): void => {
  asked.value = action;
};

const curlOf = ({ first = [], ...last }: Recipe): string => [...first, last].map(callOf).join('\n');

const callOf = ({ method, path, body }: Pick<Recipe, 'method' | 'path' | 'body'>): string =>
  [
    `curl -X ${method} "$COPPICE_URL${path}" -H "Authorization: Bearer $COPPICE_TOKEN"`,
    ...(body === undefined ? [] : [`-H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`]),
  ].join(' \\\n  ');

const Recipes = ({ recipe }: { recipe: Recipe }) => {
  const texts = { CLI: recipe.cli, curl: curlOf(recipe), SDK: recipe.sdk };
  const shown = useSignal<keyof typeof texts>('CLI');
  return (
    <div class="recipes">
      <div class="tabs">
        {(Object.keys(texts) as (keyof typeof texts)[]).map((name) => (
          <button
            type="button"
            key={name}
            aria-pressed={shown.value === name}
            onClick={() => {
              shown.value = name;
            }}
          >
            {name}
          </button>
        ))}
        <Copy text={texts[shown.value]} />
      </div>
      <pre tabIndex={0}>{texts[shown.value]}</pre>
    </div>
  );
};

const Form = ({ action }: { action: Action }) => {
  const values = useSignal<Values>(
    Object.fromEntries((action.fields ?? []).map(({ name, value = '' }) => [name, value])),
  );
  const typed = useSignal('');
  const busy = useSignal(false);
  const failure = useSignal<unknown>(undefined);
  const set = (name: string, value: string): void => {
    values.value = { ...values.value, [name]: value };
  };
  const submit = async (): Promise<void> => {
    busy.value = true;
    failure.value = undefined;
    try {
      const href = await action.run(values.value);
      asked.value = undefined;
      if (href !== undefined) go(href);
    } catch (error) {
      noticeSignOut(error);
      failure.value = error;
    } finally {
      busy.value = false;
    }
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <h2>{action.title}</h2>
      <p>{action.effect}</p>
      {action.fields?.map(({ name, label, kind, options, placeholder }) => (
        <label key={name} class={kind}>
          <span>{label}</span>
          {kind === 'choice' ? (
            <select value={values.value[name]} onChange={(event) => set(name, event.currentTarget.value)}>
              {options?.map((option) => (
                <option key={option}>{option}</option>
              ))}
            </select>
          ) : (
            <input
              {...(kind === 'flag'
                ? ({ type: 'checkbox', checked: values.value[name] === 'yes' } as const)
                : kind === 'number'
                  ? ({ type: 'number', min: 1, max: 100, value: values.value[name] } as const)
                  : ({ type: 'text', value: values.value[name], placeholder } as const))}
              autocomplete="off"
              spellcheck={false}
              onInput={(event) =>
                set(
                  name,
                  kind === 'flag' ? (event.currentTarget.checked ? 'yes' : '') : event.currentTarget.value,
                )
              }
            />
          )}
        </label>
      ))}
      {action.confirm !== undefined && (
        <label class="text">
          <span>
            Type <b>{action.confirm}</b> to go on
          </span>
          <input
            type="text"
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => {
              typed.value = event.currentTarget.value;
            }}
          />
        </label>
      )}
      <Recipes recipe={action.recipe(values.value)} />
      <Failure error={failure.value} />
      <div class="buttons">
        <button
          type="button"
          class="quiet"
          onClick={() => {
            asked.value = undefined;
          }}
        >
          Cancel
        </button>
        <button
          type="submit"
          class={action.confirm === undefined ? 'primary' : 'danger'}
          disabled={busy.value || (action.confirm !== undefined && typed.value !== action.confirm)}
        >
          {busy.value ? 'Working…' : action.verb}
        </button>
      </div>
    </form>
  );
};

export const ActionDialog = () =>
  asked.value === undefined ? null : (
    <Dialog
      title={asked.value.title}
      onClose={() => {
        asked.value = undefined;
      }}
    >
      <Form action={asked.value} />
    </Dialog>
  );

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
