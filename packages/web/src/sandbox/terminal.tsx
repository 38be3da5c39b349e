import type { Sandbox, Terminal as TerminalInfo } from '@coppice/protocol';
import { useSignal } from '@preact/signals';
import { FitAddon } from '@xterm/addon-fit';
import { WebLinksAddon } from '@xterm/addon-web-links';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { useEffect, useRef } from 'preact/hooks';
import { query, setQuery } from '../app/router.ts';
import { client, noticeSignOut } from '../app/session.ts';
import { plain } from '../app/text.ts';
import { Dialog, Failure } from '../app/ui.tsx';

const scrollback = 5_000;
const reconnectMs = 1_000;

const light = {
  background: '#ffffff',
  foreground: '#1d1e1b',
  cursor: '#256145',
  cursorAccent: '#ffffff',
  selectionBackground: '#cfe3d7',
  black: '#1d1e1b',
  red: '#b02a23',
  green: '#23734c',
  yellow: '#7d5a00',
  blue: '#2f5aa8',
  magenta: '#8a3f8f',
  cyan: '#1c6f7a',
  white: '#63625b',
  brightBlack: '#63625b',
  brightRed: '#b02a23',
  brightGreen: '#23734c',
  brightYellow: '#7d5a00',
  brightBlue: '#2f5aa8',
  brightMagenta: '#8a3f8f',
  brightCyan: '#1c6f7a',
  brightWhite: '#1d1e1b',
};
const dark = {
  background: '#101110',
  foreground: '#e7e6e0',
  cursor: '#86c7a2',
  cursorAccent: '#101110',
  selectionBackground: '#2f4437',
  black: '#2c2f29',
  red: '#f08b80',
  green: '#74c596',
  yellow: '#e0b25e',
  blue: '#9db1ee',
  magenta: '#d69adb',
  cyan: '#7fcdd6',
  white: '#e7e6e0',
  brightBlack: '#a09f96',
  brightRed: '#f5a79e',
  brightGreen: '#94d6ae',
  brightYellow: '#ecc985',
  brightBlue: '#b7c6f4',
  brightMagenta: '#e2b6e6',
  brightCyan: '#a0dbe2',
  brightWhite: '#ffffff',
};
const darkMedia = matchMedia('(prefers-color-scheme: dark)');
const themeNow = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen === 'dark' || (chosen !== 'light' && darkMedia.matches) ? dark : light;
};

/** A link that a program printed is hostile: it is shown whole, and opened only when that was seen. */
const AskLink = ({ url, onClose }: { url: string; onClose: () => void }) => (
  <Dialog title="Open this link?" onClose={onClose}>
    <form
      onSubmit={(event) => {
        event.preventDefault();
        open(url, '_blank', 'noopener,noreferrer');
        onClose();
      }}
    >
      <h2>Open this link?</h2>
      <p>A program in the sandbox printed it. It leads to</p>
      <p>
        <code class="wrap">{plain(url)}</code>
      </p>
      <div class="buttons">
        <button type="button" class="quiet" onClick={onClose}>
          Cancel
        </button>
        <button type="submit" class="primary">
          Open
        </button>
      </div>
    </form>
  </Dialog>
);

const Screen = ({ sandbox, id, onEnd }: { sandbox: Sandbox; id: number; onEnd: (said: string) => void }) => {
  const place = useRef<HTMLDivElement>(null);
  const asked = useSignal<string | undefined>(undefined);
  const title = useSignal('');
  useEffect(() => {
    const ask = (_event: MouseEvent, url: string): void => {
      if (/^https?:\/\//.test(url)) asked.value = url;
    };
    const terminal = new Terminal({
      scrollback,
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue('--mono'),
      fontSize: 13,
      theme: themeNow(),
      screenReaderMode: true,
      linkHandler: { activate: ask },
    });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.loadAddon(new WebLinksAddon(ask));
    terminal.open(place.current!);
    fit.fit();
    terminal.focus();
    terminal.onTitleChange((text) => {
      title.value = text.slice(0, 200);
    });
    const retint = (): void => {
      terminal.options.theme = themeNow();
    };
    darkMedia.addEventListener('change', retint);
    const watched = new MutationObserver(retint);
    watched.observe(document.documentElement, { attributeFilter: ['data-theme'] });

    const abort = new AbortController();
    let send: ((data: string) => void) | undefined;
    let resize: (() => void) | undefined;
    /** What was typed before there was anybody to take it. */
    let early = '';
    terminal.onData((data) => {
      if (send === undefined) early += data;
      else send(data);
    });
    const sizes = new ResizeObserver(() => {
      fit.fit();
      resize?.();
    });
    sizes.observe(place.current!);

    const show = async (): Promise<void> => {
      const session = await client()
        .sandboxes.at(sandbox.id)
        .terminals.attach(id, { screen: true, signal: abort.signal });
      // The daemon draws the screen as it is; what a lost connection left here goes first.
      terminal.reset();
      send = (data) => void session.write(data).catch(() => {});
      resize = () => void session.resize(terminal.cols, terminal.rows).catch(() => {});
      resize();
      if (early !== '') send(early);
      early = '';
      for await (const data of session)
        terminal.write(data as Uint8Array, () => void session.acknowledge(data.length).catch(() => {}));
      const { exit_code = null, signal = null } = session.exit ?? {};
      onEnd(signal === null ? `It ended with exit code ${exit_code}.` : `It ended by signal ${signal}.`);
    };
    const keepShowing = async (): Promise<void> => {
      while (!abort.signal.aborted) {
        try {
          await show();
          return;
        } catch (error) {
          send = undefined;
          if (abort.signal.aborted) return;
          noticeSignOut(error);
          if ((error as { code?: string }).code !== 'unavailable') {
            onEnd((error as Error).message);
            return;
          }
          await new Promise((resolve) => setTimeout(resolve, reconnectMs));
        }
      }
    };
    void keepShowing();
    return () => {
      abort.abort();
      sizes.disconnect();
      watched.disconnect();
      darkMedia.removeEventListener('change', retint);
      terminal.dispose();
    };
  }, [sandbox.id, id]);
  return (
    <>
      <div class="screen" ref={place} data-terminal={id} />
      <p class="note muted">{plain(title.value)}</p>
      {asked.value !== undefined && (
        <AskLink
          url={asked.value}
          onClose={() => {
            asked.value = undefined;
          }}
        />
      )}
    </>
  );
};

export const Tab = ({ sandbox }: { sandbox: Sandbox }) => {
  const terminals = useSignal<readonly TerminalInfo[] | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  const ended = useSignal<string | undefined>(undefined);
  const handle = client().sandboxes.at(sandbox.id).terminals;
  const isRunning = sandbox.state === 'running';
  const fail = (error: unknown): void => {
    noticeSignOut(error);
    failure.value = error;
  };
  const shown = Number(query.value.get('terminal') ?? 0);
  const show = (id: number): void => {
    ended.value = undefined;
    setQuery({ terminal: String(id) });
  };
  const openNew = async (): Promise<void> => {
    const { id } = await handle.open();
    terminals.value = (await handle.list()).filter(({ running }) => running);
    show(id);
  };
  useEffect(() => {
    if (!isRunning) return;
    handle
      .list()
      .then(async (found) => {
        const running = found.filter((terminal) => terminal.running);
        terminals.value = running;
        if (running.some(({ id }) => id === shown)) return;
        if (running.length > 0) show(running.at(-1)!.id);
        else await openNew();
      })
      .catch(fail);
  }, [isRunning]);
  if (!isRunning)
    return (
      <section class="empty">
        <h2>It does not run</h2>
        <p>
          {sandbox.state === 'paused'
            ? 'It is asleep. Resume it to go on where it was.'
            : 'Start it to work in it.'}
        </p>
      </section>
    );
  return (
    <>
      <Failure error={failure.value} />
      <div class="terminals">
        <div class="tabs" role="group" aria-label="Terminals">
          {terminals.value?.map(({ id, command }) => (
            <button
              type="button"
              key={id}
              aria-pressed={id === shown}
              onClick={() => show(id)}
              title={plain(command.join(' '))}
            >
              Terminal {id}
            </button>
          ))}
          <button type="button" onClick={() => void openNew().catch(fail)}>
            New
          </button>
        </div>
        {ended.value !== undefined && (
          <p class="ended" role="status">
            {plain(ended.value)}{' '}
            <button type="button" class="small" onClick={() => void openNew().catch(fail)}>
              Open another
            </button>
          </p>
        )}
        {shown > 0 && terminals.value !== undefined && (
          <Screen
            key={shown}
            sandbox={sandbox}
            id={shown}
            onEnd={(said) => {
              ended.value = said;
            }}
          />
        )}
      </div>
    </>
  );
};
