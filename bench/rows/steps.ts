import { defineRow } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';

/** A tool of a real agent takes seconds, with a call to a model before it. */
const toolMs = 500;

export const steps = defineRow({
  name: 'steps',
  title: 'a run that writes 1 MiB in each tool call of half a second, and each becomes a step',
  targets: { 'time of the run': atMost(0.05) },
  run: async (context) => {
    const { client } = await context.daemon();
    const calls = context.amount(40, 2);
    const said = 'call_id=$n tool=write ok:=true output=done';
    const command = `n=0; while [ $n -lt ${calls} ]; do n=$((n+1)); head -c 1M /dev/urandom > /root/file-$n; sleep ${toolMs / 1000}
      coppice-agent event agent.tool_result ${said} || exit 1; done; sleep ${toolMs / 1000}`;
    const { id } = await client.runs.start({ task: 'work', command });
    const ended = await client.runs.wait(id, { signal: context.signal });
    if (ended.outcome !== 'succeeded') throw new Error(`the run failed: ${ended.reason}`);
    const { events } = await client.runs.listEvents(id, { types: 'run.step', limit: 5000 });
    const tookMs = events.reduce(
      (sum, event) =>
        sum + (event.type === 'run.step' && event.data.kind === 'tool' ? event.data.took_ms : 0),
      0,
    );
    if (events.length <= calls / 2) throw new Error(`${events.length} steps of ${calls} calls`);
    await client.runs.remove(id);
    return {
      'time of the run': { value: tookMs / (Date.parse(ended.ended_at!) - Date.parse(ended.started_at!)) },
    };
  },
});
