import { join } from 'node:path';
import type { RunningDaemon } from '@coppice/testkit';
import {
  type CallToolResult,
  Client,
  type RequestOptions,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

export type Era = 'legacy' | 'auto';
export type Answer = Record<string, unknown>;

export interface AgentOptions {
  readonly session?: string;
  /** All tools, with the schemas of their answers, where nothing is said: `{}` for what a client gets by itself. */
  readonly select?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly token?: string;
  readonly era?: Era;
}

/** The real client library, as an agent's harness uses it. */
export class Agent implements AsyncDisposable {
  readonly client: Client;

  private constructor(client: Client) {
    this.client = client;
  }

  static async overHttp(daemon: RunningDaemon, options: AgentOptions = {}): Promise<Agent> {
    const url = new URL('/mcp', daemon.url);
    if (options.session !== undefined) url.searchParams.set('session', options.session);
    const select = options.select ?? { toolsets: 'all', full_schemas: 'true' };
    for (const [name, value] of Object.entries(select)) url.searchParams.set(name, value);
    const headers = { ...options.headers, authorization: `Bearer ${options.token ?? daemon.token}` };
    const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
    return Agent.#connect(options.era ?? 'auto', (client) => client.connect(transport));
  }

  static async overStdio(
    home: string,
    args: readonly string[] = ['--toolsets', 'all', '--full-schemas'],
    era: Era = 'auto',
  ): Promise<Agent> {
    const program = join(import.meta.dirname, '../../packages/cli/src/main.ts');
    const transport = new StdioClientTransport({
      command: process.execPath,
      args: [program, 'mcp', ...args],
      env: { PATH: process.env.PATH ?? '', COPPICE_HOME: home },
      stderr: 'inherit',
    });
    return Agent.#connect(era, (client) => client.connect(transport));
  }

  static async #connect(era: Era, connect: (client: Client) => Promise<void>): Promise<Agent> {
    const client = new Client(
      { name: 'test-agent', version: '1.0.0' },
      { versionNegotiation: { mode: era } },
    );
    await connect(client);
    // The client holds every answer against the output schema of a tool that it has listed.
    await client.listTools();
    return new Agent(client);
  }

  call(name: string, args: Answer = {}, options: RequestOptions = {}): Promise<CallToolResult> {
    return this.client.callTool({ name, arguments: args }, { timeout: 110_000, ...options });
  }

  /** The structured answer of a call that must succeed. */
  async ok<T = Answer>(name: string, args: Answer = {}, options: RequestOptions = {}): Promise<T> {
    const result = await this.call(name, args, options);
    if (result.isError) throw new Error(`${name} failed: ${textOf(result)}`);
    return result.structuredContent as T;
  }

  /** The text of a call that must fail. */
  async refused(name: string, args: Answer = {}): Promise<string> {
    const result = await this.call(name, args);
    if (!result.isError) throw new Error(`${name} should have failed: ${textOf(result)}`);
    return textOf(result);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client.close();
  }
}

export const textOf = (result: CallToolResult): string =>
  result.content.flatMap((block) => (block.type === 'text' ? [block.text] : [])).join('\n');
