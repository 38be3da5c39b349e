import type { RunningDaemon } from '@coppice/testkit';
import { eventually } from '@coppice/testkit';

/** A program that says the token of its run, and waits. */
export const saysItsToken = 'echo $COPPICE_RUN_TOKEN; exec sleep 100000';

export type RunCall = (
  method: string,
  path: string,
  body?: unknown,
) => Promise<{ readonly status: number; readonly body: Record<string, unknown> }>;

/** Calls what a program in the sandbox of a run may call, with the token that the program says. */
export async function callerOf(daemon: RunningDaemon, run: string): Promise<RunCall> {
  let token: string | undefined;
  await eventually('the program says its token', async () => {
    const { events } = await daemon.client.runs.listEvents(run, { types: 'agent.output' });
    const said = events.map((event) => (event.type === 'agent.output' ? event.data.text.text : '')).join('');
    token = /cpt_[A-Za-z0-9_-]+/.exec(said)?.[0];
    return token !== undefined;
  });
  return async (method, path, body) => {
    const response = await fetch(`${daemon.url}/v1/run/${path}`, {
      method,
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    return { status: response.status, body: (await response.json()) as Record<string, unknown> };
  };
}
