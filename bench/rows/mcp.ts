import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { elapsedMs } from '../harness/interleave.ts';
import { defineRow } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';

export const mcp = defineRow({
  name: 'mcp',
  title: 'latency that MCP adds to a call of the SDK',
  targets: { 'added to the median of an exec': atMost(2, 'ms') },
  run: async (context) => {
    const daemon = await context.daemon();
    const client = new Client({ name: 'bench', version: '1.0.0' });
    await client.connect(
      new StreamableHTTPClientTransport(new URL('/mcp', daemon.url), {
        requestInit: { headers: { authorization: `Bearer ${daemon.token}` } },
      }),
    );
    context.atEnd(() => client.close());
    const call = async (name: string, args: Record<string, unknown>): Promise<Record<string, unknown>> => {
      const result = await client.callTool({ name, arguments: args });
      if (result.isError) throw new Error(`${name} failed: ${JSON.stringify(result.content)}`);
      return result.structuredContent as Record<string, unknown>;
    };
    const created = await call('workspace_create', { name: 'bench' });
    const sandbox = daemon.client.sandboxes.at('bench');
    const { ours, sdk } = await context.interleave(
      {
        ours: () => elapsedMs(() => call('exec', { workspace_id: created.workspace_id, command: 'true' })),
        // The same work: the tool runs its command in bash, in the working directory.
        sdk: () => elapsedMs(() => sandbox.exec(['/bin/bash', '-c', 'true'], { cwd: '/workspace' })),
      },
      { rounds: 300, budgetS: 20 },
    );
    return {
      'added to the median of an exec': { value: ours.median - sdk.median, ours, peer: sdk },
    };
  },
});
