import type { Action, Named } from '../app/actions.tsx';
import { client } from '../app/session.ts';
import { json, quoted } from '../app/text.ts';

export const rewindRun = (run: Named, step: number): Action => ({
  title: `Rewind ${run.name} to step ${step}`,
  effect:
    'Files and conversation become what they were then, and the agent goes on from there. What came after stays in the log.',
  fields: [{ name: 'message', label: 'Say to the agent', kind: 'text', placeholder: 'what to do otherwise' }],
  verb: 'Rewind',
  recipe: ({ message = '' }) => ({
    cli: `coppice agent rewind ${quoted(run.name)} --to ${step}${message === '' ? '' : ` --message ${quoted(message)}`}`,
    method: 'POST',
    path: `/v1/runs/${run.id}/rewind`,
    body: { to: step, ...(message === '' ? {} : { message }) },
    sdk: `await coppice.runs.rewind('${run.id}', ${step}${message === '' ? '' : `, { message: ${JSON.stringify(message)} }`});`,
  }),
  run: async ({ message = '' }) => {
    await client().runs.rewind(run.id, step, message === '' ? {} : { message });
    return undefined;
  },
});

export const forkRun = (run: Named, step: number): Action => ({
  title: `Fork ${run.name} at step ${step}`,
  effect: 'Another run begins with the files and the conversation of that step. This one goes on as it was.',
  fields: [
    { name: 'name', label: 'Name', kind: 'text', placeholder: 'chosen for you' },
    { name: 'message', label: 'Say to the agent', kind: 'text', placeholder: 'what to do otherwise' },
  ],
  verb: 'Fork',
  recipe: ({ name = '', message = '' }) => {
    const body = { from: step, ...(name === '' ? {} : { name }), ...(message === '' ? {} : { message }) };
    return {
      cli: `coppice agent fork ${quoted(run.name)} --from ${step}${name === '' ? '' : ` --name ${quoted(name)}`}${message === '' ? '' : ` --message ${quoted(message)}`}`,
      method: 'POST',
      path: `/v1/runs/${run.id}/fork`,
      body,
      sdk: `await coppice.runs.fork('${run.id}', ${json(body)});`,
    };
  },
  run: async ({ name = '', message = '' }) => {
    const forked = await client().runs.fork(run.id, {
      from: step,
      ...(name === '' ? {} : { name }),
      ...(message === '' ? {} : { message }),
    });
    return `/runs/${forked.id}`;
  },
});
