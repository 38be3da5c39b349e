import { homedir } from 'node:os';
import { join } from 'node:path';

/** How a client is told to start the server. */
export interface ServerEntry {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

export interface ClientConfig {
  readonly title: string;
  readonly path: string;
  readonly format: 'json' | 'toml';
  /** The key that holds the servers. */
  readonly key: string;
  readonly entry: (server: ServerEntry) => Record<string, unknown>;
}

const plain = ({ command, args, env }: ServerEntry): Record<string, unknown> => ({
  command,
  args,
  ...(Object.keys(env).length === 0 ? {} : { env }),
});

/** Where each client keeps its servers. */
export const clients = (directory: string, home = homedir()): Readonly<Record<string, ClientConfig>> => ({
  'claude-code': {
    title: 'Claude Code, for this project',
    path: join(directory, '.mcp.json'),
    format: 'json',
    key: 'mcpServers',
    entry: plain,
  },
  'claude-desktop': {
    title: 'Claude Desktop',
    path: join(home, '.config/Claude/claude_desktop_config.json'),
    format: 'json',
    key: 'mcpServers',
    entry: plain,
  },
  cursor: {
    title: 'Cursor',
    path: join(home, '.cursor/mcp.json'),
    format: 'json',
    key: 'mcpServers',
    entry: plain,
  },
  vscode: {
    title: 'VS Code, for this project',
    path: join(directory, '.vscode/mcp.json'),
    format: 'json',
    key: 'servers',
    entry: (server) => ({ type: 'stdio', ...plain(server) }),
  },
  codex: {
    title: 'Codex',
    path: join(home, '.codex/config.toml'),
    format: 'toml',
    key: 'mcp_servers',
    entry: plain,
  },
});
