import type { Sandbox, Snapshot } from '@coppice/protocol';
import { useSignal, useSignalEffect } from '@preact/signals';
import { ask, takeSnapshot } from '../app/actions.tsx';
import { client, mayChange, noticeSignOut, onlySandbox } from '../app/session.ts';
import { deleteSnapshot, forkSnapshot, restore } from '../app/snapshot-actions.ts';
import { generation, refOf } from '../app/store.ts';
import { bytes, plain } from '../app/text.ts';
import { Age, Failure } from '../app/ui.tsx';

export const Tab = ({ sandbox }: { sandbox: Sandbox }) => {
  const found = useSignal<readonly Snapshot[] | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  useSignalEffect(() => {
    void generation.value;
    client()
      .sandboxes.at(sandbox.id)
      .snapshots()
      .then(
        (snapshots) => {
          found.value = snapshots.toReversed();
        },
        (error: unknown) => {
          noticeSignOut(error);
          failure.value = error;
        },
      );
  });
  if (found.value?.length === 0)
    return (
      <section class="empty">
        <h2>No snapshots</h2>
        <p>A snapshot keeps the files as they are, to come back to or to grow others from.</p>
        {mayChange() && (
          <p>
            <button type="button" class="primary" onClick={() => ask(takeSnapshot(sandbox))}>
              Snapshot
            </button>
          </p>
        )}
      </section>
    );
  return (
    <>
      <Failure error={failure.value} />
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th>Kind</th>
            <th class="number">Holds</th>
            <th class="number">Alone</th>
            <th class="number">Age</th>
            <td />
          </tr>
        </thead>
        <tbody>
          {found.value?.map((snapshot) => (
            <tr key={snapshot.id}>
              <td title={plain(snapshot.note)}>{plain(snapshot.name)}</td>
              <td class="muted">
                {snapshot.has_memory ? 'checkpoint' : snapshot.automatic ? 'automatic' : 'snapshot'}
              </td>
              <td class="number">{bytes(snapshot.referenced_bytes)}</td>
              <td class="number">{bytes(snapshot.used_bytes)}</td>
              <td class="number">
                <Age at={snapshot.created_at} />
              </td>
              <td class="do">
                {mayChange() && (
                  <button type="button" class="quiet small" onClick={() => ask(restore(sandbox, snapshot))}>
                    Restore
                  </button>
                )}
                {mayChange() && onlySandbox() === undefined && (
                  <>
                    <button type="button" class="quiet small" onClick={() => ask(forkSnapshot(snapshot))}>
                      Fork
                    </button>
                    <a href={`/compare?from=${snapshot.id}&to=${encodeURIComponent(refOf(sandbox))}`}>
                      Compare
                    </a>
                    <button type="button" class="quiet small" onClick={() => ask(deleteSnapshot(snapshot))}>
                      Delete
                    </button>
                  </>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
};
