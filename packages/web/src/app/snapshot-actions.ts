import { type Action, forkBody, forkFields, forkWords, type Named } from './actions.tsx';
import { client } from './session.ts';
import { grownFrom, hrefOf, lost, refOf, saw } from './store.ts';
import { count, json, quoted } from './text.ts';

export const forkSnapshot = (snapshot: Named): Action => ({
  title: `Fork from ${snapshot.name}`,
  effect: 'Grows sandboxes from this snapshot. They share everything until one of them writes.',
  fields: forkFields,
  verb: 'Fork',
  recipe: (values) => ({
    cli: `coppice fork ${snapshot.id}${forkWords(values)}`,
    method: 'POST',
    path: `/v1/snapshots/${snapshot.id}/fork`,
    body: forkBody(values),
    sdk: `await coppice.snapshots.fork('${snapshot.id}'${json(forkBody(values)) && `, ${json(forkBody(values))}`});`,
  }),
  run: async (values) => {
    const { sandboxes, failures } = await client().snapshots.fork(snapshot.id, forkBody(values));
    for (const { info } of sandboxes) if (info !== undefined) saw(info);
    if (failures[0] !== undefined)
      throw new Error(`${failures.length} did not come to be: ${failures[0].message}`);
    return sandboxes.length === 1 ? hrefOf(sandboxes[0]!.id) : undefined;
  },
});

export const restore = (sandbox: Named, snapshot: Named): Action => ({
  title: `Restore ${sandbox.name} to ${snapshot.name}`,
  effect:
    'Its files become what the snapshot holds, and its processes end. What is there now is kept as a snapshot, so this can be undone.',
  verb: 'Restore',
  recipe: () => ({
    cli: `coppice restore ${quoted(sandbox.name)} ${snapshot.id}`,
    method: 'POST',
    path: `/v1/sandboxes/${sandbox.id}/restore`,
    body: { snapshot: snapshot.id },
    sdk: `await coppice.sandboxes.at('${sandbox.id}').restore('${snapshot.id}');`,
  }),
  run: async () => {
    await client().sandboxes.at(sandbox.id).restore(snapshot.id);
    return undefined;
  },
});

export const keepSnapshot = (snapshot: Named): Action => ({
  title: `Keep ${snapshot.name}`,
  effect: 'Coppice took it for itself and would remove it. From now on it stays until you delete it.',
  fields: [{ name: 'name', label: 'Name', kind: 'text', placeholder: snapshot.name }],
  verb: 'Keep',
  recipe: ({ name = '' }) => ({
    cli: `coppice keep ${snapshot.id}${name === '' ? '' : ` --name ${quoted(name)}`}`,
    method: 'PATCH',
    path: `/v1/snapshots/${snapshot.id}`,
    body: name === '' ? {} : { name },
    sdk: `await coppice.snapshots.keep('${snapshot.id}'${name === '' ? '' : `, { name: ${JSON.stringify(name)} }`});`,
  }),
  run: async ({ name = '' }) => {
    await client().snapshots.keep(snapshot.id, name === '' ? {} : { name });
    return undefined;
  },
});

/** With the sandboxes that grew from it, and from those: the last of them first, as each needs what it grew from. */
export const deleteSnapshot = (snapshot: Named): Action => {
  const grown = grownFrom(snapshot.id);
  const names = grown.map(({ name }) => name).join(', ');
  return {
    title: `Delete ${snapshot.name}`,
    effect:
      grown.length === 0
        ? 'No sandbox grew from it. It cannot be brought back.'
        : `Deletes what stands on it first: ${names}, with their disks and snapshots. None of it can be brought back.`,
    confirm: snapshot.name,
    verb: grown.length === 0 ? 'Delete' : `Delete it and ${count(grown.length, 'sandbox', 'sandboxes')}`,
    recipe: () => ({
      first: grown.map(({ id }) => ({ method: 'DELETE', path: `/v1/sandboxes/${id}?snapshots=delete` })),
      cli: [
        ...grown.map((sandbox) => `coppice rm ${quoted(refOf(sandbox))} --snapshots`),
        `coppice rm ${snapshot.id}`,
      ].join('\n'),
      method: 'DELETE',
      path: `/v1/snapshots/${snapshot.id}`,
      sdk: [
        ...grown.map(({ id }) => `await coppice.sandboxes.at('${id}').destroy({ snapshots: 'delete' });`),
        `await coppice.snapshots.delete('${snapshot.id}');`,
      ].join('\n'),
    }),
    run: async () => {
      for (const { id } of grown) {
        await client().sandboxes.at(id).destroy({ snapshots: 'delete' });
        lost(id);
      }
      await client().snapshots.delete(snapshot.id);
      return undefined;
    },
  };
};
