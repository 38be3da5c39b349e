import type { Sandbox } from '@coppice/protocol';
import { signal, useSignal, useSignalEffect } from '@preact/signals';
import type { ComponentType } from 'preact';
import { useEffect } from 'preact/hooks';
import { actionsOf, ask } from '../app/actions.tsx';
import { useKeys } from '../app/keys.ts';
import { go, query, setQuery } from '../app/router.ts';
import { client, noticeSignOut, onlySandbox } from '../app/session.ts';
import { hrefOf, loaded, nameOf, refOf, sandboxOf, saw } from '../app/store.ts';
import { dollars, plain } from '../app/text.ts';
import { Age, Chips, Copy, State } from '../app/ui.tsx';
import { spending, watchSpending } from '../overview/spending.ts';
import { usage, watchUsage } from '../overview/usage.ts';
import { Usage } from './usage-panel.tsx';

const measureEveryMs = 2_000;

type Tab = ComponentType<{ sandbox: Sandbox }>;

/** Each is loaded when it is looked at; the terminal is as large as all the rest. */
const tabs: Readonly<Record<string, { readonly title: string; readonly load: () => Promise<{ Tab: Tab }> }>> =
  {
    terminal: { title: 'Terminal', load: () => import('./terminal.tsx') },
    files: { title: 'Files', load: () => import('./files.tsx') },
    processes: { title: 'Processes', load: () => import('./processes.tsx') },
    snapshots: { title: 'Snapshots', load: () => import('./snapshots.tsx') },
    network: { title: 'Network and ports', load: () => import('./network.tsx') },
    events: { title: 'Events', load: () => import('./events.tsx') },
  };
const loadedTabs = signal<Readonly<Record<string, Tab>>>({});

const Facts = ({ sandbox }: { sandbox: Sandbox }) => (
  <aside aria-label="About this sandbox">
    <Usage sandbox={sandbox} usage={usage.value.get(sandbox.id)} />
    <dl class="facts">
      <dt>Image</dt>
      <dd>{plain(sandbox.image)}</dd>
      <dt>Driver</dt>
      <dd>{sandbox.driver}</dd>
      <dt>Grown from</dt>
      <dd>
        {sandbox.parent === null ? (
          'its image'
        ) : sandbox.parent.sandbox_id === null ? (
          <code>{sandbox.parent.snapshot_id}</code>
        ) : (
          <a href={hrefOf(sandbox.parent.sandbox_id)}>{plain(nameOf(sandbox.parent.sandbox_id))}</a>
        )}
      </dd>
      <dt>Models today</dt>
      <dd>{dollars(spending.value?.bySandbox.get(sandbox.id) ?? 0)}</dd>
      <dt>Age</dt>
      <dd>
        <Age at={sandbox.created_at} />
      </dd>
      <dt>When idle</dt>
      <dd>
        {sandbox.idle_timeout_s === null
          ? 'goes on'
          : `${sandbox.idle_action === 'pause' ? 'sleeps' : 'stops'} after ${sandbox.idle_timeout_s} s`}
      </dd>
      {sandbox.mounts.map(({ host_path, guest_path, read_only }) => (
        <>
          <dt>Mounted</dt>
          <dd>
            <span class="mono">{plain(host_path)}</span> at <span class="mono">{plain(guest_path)}</span>:
            shared
            {read_only && ', read-only'}, not part of snapshots, forks, diffs and merges
          </dd>
        </>
      ))}
      {sandbox.env_names.length > 0 && (
        <>
          <dt>Variables</dt>
          <dd>{plain(sandbox.env_names.join(', '))}</dd>
        </>
      )}
      {Object.entries(sandbox.labels).map(([key, value]) => (
        <>
          <dt>{plain(key)}</dt>
          <dd>{plain(value)}</dd>
        </>
      ))}
      <dt>Id</dt>
      <dd>
        <code class="id">{sandbox.id}</code> <Copy text={sandbox.id} />
      </dd>
    </dl>
  </aside>
);

const View = ({ sandbox }: { sandbox: Sandbox }) => {
  const { id } = sandbox;
  useEffect(() => watchUsage(() => [id], measureEveryMs), [id]);
  useEffect(watchSpending, []);
  const tab = query.value.get('tab') ?? 'terminal';
  useSignalEffect(() => {
    const wanted = query.value.get('tab') ?? 'terminal';
    if (Object.hasOwn(loadedTabs.value, wanted) || !Object.hasOwn(tabs, wanted)) return;
    void tabs[wanted]!.load().then(({ Tab }) => {
      loadedTabs.value = { ...loadedTabs.value, [wanted]: Tab };
    });
  });
  const actions = actionsOf(sandbox).filter(
    ({ title }) => onlySandbox() === undefined || !['Fork', 'Destroy'].includes(title),
  );
  useKeys(
    {
      ...Object.fromEntries(
        actions
          .filter(({ key }) => key !== undefined)
          .map(({ key, title, action }) => [key!, { title, run: () => ask(action) }]),
      ),
      d: {
        title: 'Compare with what it grew from',
        run: () => {
          if (sandbox.parent)
            go(`/compare?from=${sandbox.parent.snapshot_id}&to=${encodeURIComponent(refOf(sandbox))}`);
        },
      },
      t: { title: 'Terminal', run: () => setQuery({ tab: '' }) },
    },
    [id, sandbox.state],
  );
  const Shown = loadedTabs.value[tab];
  return (
    <>
      <div class="title">
        <State of={sandbox.state} />
        <h1>{plain(refOf(sandbox))}</h1>
        {actions.map(({ key, title, action }) => (
          <button
            type="button"
            key={title}
            class={title === 'Destroy' ? 'danger' : ''}
            onClick={() => ask(action)}
          >
            {title} {key !== undefined && <kbd>{key}</kbd>}
          </button>
        ))}
      </div>
      {sandbox.failure !== null && <p class="failure">{plain(sandbox.failure)}</p>}
      <div class="bar">
        <Chips
          label="Part"
          chosen={tab}
          choose={(value) => setQuery({ tab: value === 'terminal' ? '' : value }, { replace: false })}
          options={Object.entries(tabs).map(([value, { title }]) => ({ value, title }))}
        />
      </div>
      <div class="split">
        <div class="tab">{Shown !== undefined && <Shown key={id} sandbox={sandbox} />}</div>
        <Facts sandbox={sandbox} />
      </div>
    </>
  );
};

export const Page = ({ argument }: { argument: string }) => {
  const missing = useSignal(false);
  const sandbox = sandboxOf(argument);
  useEffect(() => {
    missing.value = false;
    if (sandbox !== undefined || !loaded.value) return;
    client()
      .sandboxes.at(argument)
      .inspect()
      .then(saw, (error: unknown) => {
        noticeSignOut(error);
        missing.value = true;
      });
  }, [argument, sandbox === undefined, loaded.value]);
  if (sandbox !== undefined) return <View sandbox={sandbox} />;
  return missing.value ? (
    <div class="empty">
      <h1>There is no sandbox {plain(argument)}</h1>
      <p>It may have been destroyed. Its snapshots, if it had any, are in the lineage.</p>
      <p>
        <a href="/lineage">Lineage</a> <a href="/">Overview</a>
      </p>
    </div>
  ) : (
    <h1 class="sr">{plain(argument)}</h1>
  );
};
