import type { AgentContents } from '@coppice/testkit';

/** How an agent is tried: how its model calls the tool that runs a command. */
export interface RealAgent {
  readonly name: string;
  readonly tool: (command: string) => { name: string; input: Record<string, unknown> };
}

export const realAgents: readonly RealAgent[] = [
  { name: 'pi', tool: (command) => ({ name: 'bash', input: { command } }) },
  { name: 'goose', tool: (command) => ({ name: 'shell', input: { command } }) },
  { name: 'codex', tool: (command) => ({ name: 'exec_command', input: { cmd: command } }) },
];

/** The commands of the image that they all run in. */
export const contents: AgentContents = {
  pi: '@earendil-works/pi-coding-agent/dist/bundle/cli.js',
  goose: '@aaif/goose-binary-linux-x64/bin/goose',
  codex: '@openai/codex/bin/codex.js',
  'codex-acp': '@agentclientprotocol/codex-acp/dist/index.js',
};
