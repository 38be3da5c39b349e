import type { Question, Sandbox } from '@coppice/protocol';
import type { Action } from '../app/actions.tsx';
import { lookAtQuestions } from '../app/questions.ts';
import { client } from '../app/session.ts';
import { refOf } from '../app/store.ts';
import { json, quoted } from '../app/text.ts';

const answersFor = {
  Allow: { once: 'once', always: 'allow' },
  Refuse: { once: 'refuse', always: 'deny' },
} as const;

/** `once` settles the connections that wait; `always` changes the policy. */
export const answer = (
  sandbox: Sandbox,
  { name, port, connections }: Question,
  verb: keyof typeof answersFor,
): Action => {
  const body = ({ scope = 'once' }: Readonly<Record<string, string>>) => ({
    name,
    port,
    answer: answersFor[verb][scope as 'once'],
  });
  return {
    title: `${verb} ${name}:${port} for ${refOf(sandbox)}`,
    effect: `${connections} of its connections ${connections === 1 ? 'waits' : 'wait'} for this. “always” changes its network policy.`,
    fields: [
      { name: 'scope', label: 'How long', kind: 'choice', value: 'once', options: ['once', 'always'] },
    ],
    verb,
    recipe: (values) => ({
      cli: `coppice net ${quoted(refOf(sandbox))} --answer ${quoted(`${name}:${port}=${body(values).answer}`)}`,
      method: 'POST',
      path: `/v1/sandboxes/${sandbox.id}/questions/answer`,
      body: body(values),
      sdk: `await coppice.sandboxes.at('${sandbox.id}').answer(${json(body(values))});`,
    }),
    run: async (values) => {
      await client().sandboxes.at(sandbox.id).answer(body(values));
      await lookAtQuestions(sandbox.id);
      return undefined;
    },
  };
};
