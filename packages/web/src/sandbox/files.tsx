import type { FileInfo, Sandbox } from '@coppice/protocol';
import { useSignal, useSignalEffect } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { query, setQuery } from '../app/router.ts';
import { client, noticeSignOut } from '../app/session.ts';
import { bytes, exact, plain } from '../app/text.ts';
import { Failure } from '../app/ui.tsx';

/** More is for an editor on the machine of whoever edits. */
const mostEdited = 1_000_000;
const mostListed = 2_000;

const join = (directory: string, name: string): string =>
  directory === '/' ? `/${name}` : `${directory}/${name}`;
const above = (path: string): string => path.replace(/\/[^/]+$/, '') || '/';

/** The name is chosen here: what a sandbox calls its file is only part of it. */
const save = (parts: readonly Uint8Array[], name: string): void => {
  const url = URL.createObjectURL(
    new Blob(parts as Uint8Array<ArrayBuffer>[], { type: 'application/octet-stream' }),
  );
  const link = document.createElement('a');
  link.href = url;
  link.download = name.replaceAll(/[^\w.-]/g, '_');
  link.click();
  URL.revokeObjectURL(url);
};

const Editor = ({ sandbox, path, onClose }: { sandbox: Sandbox; path: string; onClose: () => void }) => {
  const text = useSignal<string | undefined>(undefined);
  const written = useSignal('');
  const why = useSignal('');
  const failure = useSignal<unknown>(undefined);
  const files = client().sandboxes.at(sandbox.id).files;
  useEffect(() => {
    text.value = undefined;
    why.value = '';
    files.read(path, { length: mostEdited + 1 }).then(
      (found) => {
        if (found.length > mostEdited)
          why.value = 'This file is too large to edit here. Download it instead.';
        else if (found.includes(0)) why.value = 'This file is not text. Download it instead.';
        else {
          text.value = new TextDecoder().decode(found);
          written.value = text.value;
        }
      },
      (error: unknown) => {
        noticeSignOut(error);
        failure.value = error;
      },
    );
  }, [path]);
  const write = (): void => {
    const content = text.value ?? '';
    files.write(path, content).then(
      () => {
        written.value = content;
        failure.value = undefined;
      },
      (error: unknown) => {
        noticeSignOut(error);
        failure.value = error;
      },
    );
  };
  return (
    <div class="editor">
      <div class="bar">
        <h2 class="mono">{plain(path)}</h2>
        <span>
          {text.value !== undefined && (
            <button type="button" class="primary" disabled={text.value === written.value} onClick={write}>
              Save
            </button>
          )}{' '}
          <button type="button" onClick={onClose}>
            Close
          </button>
        </span>
      </div>
      <Failure error={failure.value} />
      {why.value !== '' && <p class="muted">{why.value}</p>}
      {text.value !== undefined && (
        <textarea
          class="mono"
          aria-label={`Content of ${plain(path)}`}
          spellcheck={false}
          value={text.value}
          onInput={(event) => {
            text.value = event.currentTarget.value;
          }}
        />
      )}
    </div>
  );
};

export const Tab = ({ sandbox }: { sandbox: Sandbox }) => {
  const entries = useSignal<readonly FileInfo[]>([]);
  const truncated = useSignal(false);
  const failure = useSignal<unknown>(undefined);
  const busy = useSignal('');
  const over = useSignal(false);
  const turn = useSignal(0);
  const files = client().sandboxes.at(sandbox.id).files;
  const fail = (error: unknown): void => {
    noticeSignOut(error);
    failure.value = error;
    busy.value = '';
  };
  const directory = query.value.get('in') ?? '/';
  const edited = query.value.get('file');
  useSignalEffect(() => {
    void turn.value;
    const path = query.value.get('in') ?? '/';
    files.list(path, { limit: mostListed }).then((found) => {
      entries.value = found.entries.toSorted(
        (a, b) =>
          Number(b.kind === 'directory') - Number(a.kind === 'directory') || (a.name < b.name ? -1 : 1),
      );
      truncated.value = found.truncated;
      failure.value = undefined;
    }, fail);
  });
  const again = (): void => {
    turn.value += 1;
    busy.value = '';
  };
  const upload = async (list: FileList): Promise<void> => {
    for (const file of list) {
      busy.value = `Sending ${file.name}`;
      await files.write(join(directory, file.name), file);
    }
    again();
  };
  const download = async (entry: FileInfo): Promise<void> => {
    busy.value = `Fetching ${entry.name}`;
    const isTree = entry.kind === 'directory';
    const parts: Uint8Array[] = [];
    for await (const part of isTree ? files.archive(entry.path) : files.readStream(entry.path))
      parts.push(part);
    save(parts, isTree ? `${entry.name}.tar` : entry.name);
    busy.value = '';
  };
  if (edited !== null)
    return <Editor sandbox={sandbox} path={edited} onClose={() => setQuery({ file: '' })} />;
  const steps = directory.split('/').filter(Boolean);
  return (
    <div
      class={`files ${over.value ? 'over' : ''}`}
      role="group"
      aria-label="Files"
      onDragOver={(event) => {
        event.preventDefault();
        over.value = true;
      }}
      onDragLeave={() => {
        over.value = false;
      }}
      onDrop={(event) => {
        event.preventDefault();
        over.value = false;
        if (event.dataTransfer !== null) upload(event.dataTransfer.files).catch(fail);
      }}
    >
      <div class="bar">
        <nav class="crumbs mono" aria-label="Where">
          <button type="button" class="quiet small" onClick={() => setQuery({ in: '/' }, { replace: false })}>
            /
          </button>
          {steps.map((step, index) => (
            <button
              type="button"
              class="quiet small"
              key={steps.slice(0, index + 1).join('/')}
              onClick={() => setQuery({ in: `/${steps.slice(0, index + 1).join('/')}` }, { replace: false })}
            >
              {plain(step)}
            </button>
          ))}
        </nav>
        <span class="muted" role="status">
          {busy.value === ''
            ? truncated.value
              ? `The first ${mostListed}`
              : 'Drop files here to send them'
            : plain(busy.value)}
        </span>
        <label class="button">
          Upload
          <input
            type="file"
            class="sr"
            multiple
            onChange={(event) => {
              if (event.currentTarget.files !== null) upload(event.currentTarget.files).catch(fail);
            }}
          />
        </label>
      </div>
      <Failure error={failure.value} />
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th class="number">Size</th>
            <th>Mode</th>
            <th>Changed</th>
            <td />
          </tr>
        </thead>
        <tbody>
          {directory !== '/' && (
            <tr>
              <td class="mono">
                <button type="button" class="quiet small" onClick={() => setQuery({ in: above(directory) })}>
                  ..
                </button>
              </td>
              <td colSpan={4} />
            </tr>
          )}
          {entries.value.map((entry) => (
            <tr key={entry.path}>
              <td class="mono cut">
                {entry.kind === 'directory' ? (
                  <button
                    type="button"
                    class="link"
                    onClick={() => setQuery({ in: entry.path }, { replace: false })}
                  >
                    {plain(entry.name)}/
                  </button>
                ) : entry.kind === 'file' ? (
                  <button
                    type="button"
                    class="link"
                    onClick={() => setQuery({ file: entry.path }, { replace: false })}
                  >
                    {plain(entry.name)}
                  </button>
                ) : (
                  <span class="muted">
                    {plain(entry.name)}
                    {entry.target !== null && ` → ${plain(entry.target)}`}
                  </span>
                )}
              </td>
              <td class="number">{entry.kind === 'file' ? bytes(entry.size_bytes) : ''}</td>
              <td class="mono muted">{entry.mode}</td>
              <td class="muted">{exact(entry.modified_at)}</td>
              <td class="do">
                {(entry.kind === 'file' || entry.kind === 'directory') && (
                  <button type="button" class="quiet small" onClick={() => void download(entry).catch(fail)}>
                    Download
                  </button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
};
