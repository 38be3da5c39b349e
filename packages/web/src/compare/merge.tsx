import type { Merged } from '@coppice/protocol';
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { client, mayChange, noticeSignOut } from '../app/session.ts';
import { sandboxOf } from '../app/store.ts';
import { count, plain, quoted } from '../app/text.ts';
import { Command, Failure } from '../app/ui.tsx';
import { DiffView } from './diff-view.tsx';

type Side = 'ours' | 'theirs';

/**
 * Brings `from` into `into`: first what would happen, a side for each conflict, then the merge and a way back. `onChange` is called
 * whenever `into` holds something else.
 */
export const Merge = ({ from, into, onChange }: { from: string; into: string; onChange: () => void }) => {
  const plan = useSignal<Merged | undefined>(undefined);
  const done = useSignal<Merged | undefined>(undefined);
  const choices = useSignal<Readonly<Record<string, Side>>>({});
  const shown = useSignal<string | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  const busy = useSignal(false);
  const fromId = sandboxOf(from)?.id ?? from;
  const intoId = sandboxOf(into)?.id ?? into;
  const target = client().sandboxes.at(intoId);
  const fail = (error: unknown): void => {
    noticeSignOut(error);
    failure.value = error;
  };
  const look = (): void => {
    plan.value = undefined;
    choices.value = {};
    target.merge(fromId, { dry_run: true }).then((found) => {
      plan.value = found;
    }, fail);
  };
  useEffect(look, [fromId, intoId]);
  const work = (doing: () => Promise<void>): void => {
    busy.value = true;
    failure.value = undefined;
    doing()
      .catch(fail)
      .finally(() => {
        busy.value = false;
      });
  };
  const conflicts = plan.value?.conflicts ?? [];
  const isSettled = conflicts.every(({ path }) => choices.value[path] !== undefined);
  const undo = done.value?.undo_snapshot_id;
  if (done.value !== undefined)
    return (
      <section class="merge" aria-label="Merge">
        <h2>Merged</h2>
        <p>
          {count(
            done.value.summary.added +
              done.value.summary.modified +
              done.value.summary.removed +
              done.value.summary.mode,
            'change',
          )}{' '}
          of {plain(from)} are in {plain(into)} now.
        </p>
        <Failure error={failure.value} />
        {undo && (
          <>
            <button
              type="button"
              disabled={busy.value}
              onClick={() =>
                work(async () => {
                  await target.restore(undo);
                  done.value = undefined;
                  look();
                  onChange();
                })
              }
            >
              Undo
            </button>
            <Command text={`coppice restore ${quoted(into)} ${undo}`} />
          </>
        )}
      </section>
    );
  return (
    <section class="merge" aria-label="Merge">
      <h2>
        Merge {plain(from)} into {plain(into)}
      </h2>
      <Failure error={failure.value} />
      {plan.value !== undefined && (
        <>
          <p>
            Brings {count(plan.value.summary.added, 'new path')},{' '}
            {count(plan.value.summary.modified, 'changed one')} and{' '}
            {count(plan.value.summary.removed, 'removal')}
            {conflicts.length === 0
              ? '. Nothing conflicts.'
              : `; both sides changed ${count(plan.value.conflict_count, 'path')}:`}
          </p>
          {conflicts.length > 0 && (
            <table>
              <thead>
                <tr>
                  <th>Path</th>
                  <th>{plain(into)}</th>
                  <th>{plain(from)}</th>
                  <th>Keep</th>
                </tr>
              </thead>
              <tbody>
                {conflicts.map(({ path, ours, theirs }) => (
                  <tr key={path} class={path === shown.value ? 'selected' : ''}>
                    <td>
                      <button
                        type="button"
                        class="link mono"
                        onClick={() => {
                          shown.value = path === shown.value ? undefined : path;
                        }}
                      >
                        {plain(path)}
                      </button>
                    </td>
                    <td>{ours}</td>
                    <td>{theirs}</td>
                    <td>
                      {(['ours', 'theirs'] as const).map((side) => (
                        <label key={side} class="side">
                          <input
                            type="radio"
                            name={path}
                            checked={choices.value[path] === side}
                            onChange={() => {
                              choices.value = { ...choices.value, [path]: side };
                            }}
                          />{' '}
                          {plain(side === 'ours' ? into : from)}
                        </label>
                      ))}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
          {shown.value !== undefined && plan.value.base_snapshot_id !== null && (
            <div class="three">
              <DiffView
                from={plan.value.base_snapshot_id}
                to={intoId}
                path={shown.value}
                isSplit={false}
                label={`${into} since they parted`}
              />
              <DiffView
                from={plan.value.base_snapshot_id}
                to={fromId}
                path={shown.value}
                isSplit={false}
                label={`${from} since they parted`}
              />
            </div>
          )}
          {mayChange() && (
            <div class="buttons">
              <button
                type="button"
                class="primary"
                disabled={busy.value || !isSettled}
                onClick={() =>
                  work(async () => {
                    done.value = await target.merge(fromId, { choose: choices.value });
                    onChange();
                  })
                }
              >
                {busy.value ? 'Merging…' : 'Merge'}
              </button>
            </div>
          )}
        </>
      )}
    </section>
  );
};
