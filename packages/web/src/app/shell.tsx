import { signal, useSignalEffect } from '@preact/signals';
import { asked } from './actions.tsx';
import { type Found, features, find, load, navigation, pageOf } from './features.ts';
import { allKeys, paletteOpen, typeAhead, useKeys } from './keys.ts';
import { lazily } from './lazily.tsx';
import { go, path } from './router.ts';
import { leave, onlyRun, onlySandbox, signIn } from './session.ts';
import { connection } from './store.ts';
import { Command, Dialog } from './ui.tsx';

const themes = ['system', 'light', 'dark'] as const;
const theme = signal(localStorage.getItem('coppice.theme') ?? 'system');
const applyTheme = (): void => {
  document.documentElement.dataset.theme = theme.value;
};
applyTheme();

const ActionDialog = lazily(async () => (await import('./action-dialog.tsx')).ActionDialog);
const Palette = lazily(async () => (await import('./palette.tsx')).Palette);

const helpOpen = signal(false);
/** Counts up when the code of a page has come. */
const arrived = signal(0);

const connections = {
  connecting: ['Connecting', 'wait'],
  live: ['Live', 'ok'],
  lost: ['Reconnecting', 'bad'],
  asleep: ['Asleep', 'wait'],
} as const;

const Live = () => {
  const [word, kind] = connections[connection.value];
  return (
    <span class={`live ${kind}`} role="status">
      <i aria-hidden="true" />
      {word}
    </span>
  );
};

const Help = () =>
  helpOpen.value ? (
    <Dialog
      title="Keys"
      onClose={() => {
        helpOpen.value = false;
      }}
    >
      <h2>Keys</h2>
      <dl class="keys">
        {allKeys().map(([key, { title }]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{title}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  ) : null;

const SignedOut = ({ reason }: { reason: string }) => (
  <main class="alone">
    <h1>
      <Mark /> coppice
    </h1>
    {reason !== '' && <p role="alert">{reason}</p>}
    <p>Where the daemon runs, ask for a link. It signs this browser in, once.</p>
    <Command text="coppice open" />
  </main>
);

const Mark = () => (
  <svg class="mark" viewBox="0 0 16 16" aria-hidden="true">
    <path d="M8 15V8M8 11.500C8 8.500 4 9 4 5.500M8 10C8 7.500 12 8 12 5M8 8V3.500" />
    <circle cx="4" cy="4" r="1.500" />
    <circle cx="12" cy="3.500" r="1.500" />
    <circle cx="8" cy="2" r="1.500" />
  </svg>
);

const foundHere = (): Found | undefined => {
  const run = onlyRun();
  if (run !== undefined) return find(`/runs/${run}`);
  const only = onlySandbox();
  if (only === undefined) return find(path.value);
  const sandbox = features.find(({ isForOneSandbox }) => isForOneSandbox)!;
  return { feature: sandbox, argument: only };
};

const Body = () => {
  const found = foundHere();
  void arrived.value;
  useSignalEffect(() => {
    const wanted = foundHere();
    if (wanted === undefined || pageOf(wanted.feature) !== undefined) return;
    void load(wanted.feature).then(() => {
      arrived.value += 1;
    });
  });
  if (found === undefined)
    return (
      <main class="alone">
        <h1>There is nothing here</h1>
        <p>
          <a href="/">Back to the overview</a>
        </p>
      </main>
    );
  const Page = pageOf(found.feature);
  return (
    <main class={found.feature.name} id="main">
      {Page === undefined ? <h1 class="sr">{found.feature.title}</h1> : <Page argument={found.argument} />}
    </main>
  );
};

const Navigation = () => (
  <header>
    <a href="/" class="brand">
      <Mark /> coppice
    </a>
    <nav aria-label="Pages">
      {navigation().map((feature) => (
        <a
          key={feature.name}
          href={feature.path}
          aria-current={find(path.value)?.feature === feature ? 'page' : undefined}
        >
          {feature.title}
        </a>
      ))}
    </nav>
    <Live />
    <button
      type="button"
      class="quiet find"
      onClick={() => {
        paletteOpen.value = true;
      }}
    >
      Find or do <kbd>Ctrl K</kbd>
    </button>
    <button
      type="button"
      class="quiet"
      onClick={() => {
        theme.value = themes[(themes.indexOf(theme.value as 'system') + 1) % themes.length]!;
        localStorage.setItem('coppice.theme', theme.value);
        applyTheme();
      }}
    >
      <span class="word">Theme: </span>
      {theme.value}
    </button>
    <button type="button" class="quiet" onClick={() => void leave()}>
      Sign out
    </button>
  </header>
);

const SignedIn = () => {
  useKeys(
    {
      'Ctrl K': {
        title: 'Find or do',
        run: () => {
          paletteOpen.value = !paletteOpen.value;
          if (paletteOpen.value) typeAhead();
        },
      },
      '?': {
        title: 'Show these keys',
        run: () => {
          helpOpen.value = true;
        },
      },
      o: { title: 'Overview', run: () => go('/') },
      l: { title: 'Lineage', run: () => go('/lineage') },
      e: { title: 'Events', run: () => go('/events') },
      '/': {
        title: 'Filter',
        run: () => document.querySelector<HTMLInputElement>('input[type=search]')?.focus(),
      },
    },
    [],
  );
  return (
    <>
      <Navigation />
      <Body />
      <ActionDialog isShown={asked.value !== undefined} />
      <Palette isShown={paletteOpen.value} />
      <Help />
    </>
  );
};

export const App = () => {
  const { value } = signIn;
  if (value.state === 'opening') return null;
  return value.state === 'out' ? <SignedOut reason={value.reason} /> : <SignedIn />;
};
