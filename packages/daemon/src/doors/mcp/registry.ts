import type { Action } from '@coppice/protocol';
import type { Tool as ToolListing } from '@modelcontextprotocol/server';
import { z } from 'zod';
import type { Tool } from './tool.ts';
import { execTools } from './tools/exec.ts';
import { fileTools } from './tools/files.ts';
import { forkTools } from './tools/fork.ts';
import { gitTools } from './tools/git.ts';
import { lifecycleTools } from './tools/lifecycle.ts';
import { mergeTools } from './tools/merge.ts';
import { networkTools } from './tools/network.ts';
import { orchestrateTools } from './tools/orchestrate.ts';
import { ownershipTools } from './tools/ownership.ts';
import { snapshotTools } from './tools/snapshots.ts';
import { vaultTools } from './tools/vault.ts';

export const toolGroups: Readonly<Record<string, readonly Tool[]>> = {
  Lifecycle: [...lifecycleTools, ...ownershipTools],
  Execution: execTools,
  Files: fileTools,
  Snapshots: snapshotTools,
  Forks: forkTools,
  Network: networkTools,
  Git: [...gitTools, ...mergeTools],
  Orchestration: orchestrateTools,
  'Shared notes': vaultTools,
};

const allTools = Object.values(toolGroups).flat();
const byName: ReadonlyMap<string, Tool> = new Map(allTools.map((tool) => [tool.name, tool]));

/** The tools that cover most work; for models that choose badly among many. */
const core = [
  'workspace_create',
  'exec',
  'file_write',
  'file_read',
  'file_list',
  'snapshot_create',
  'snapshot_restore',
  'workspace_destroy',
];

export const profiles = ['core', 'full'] as const;
export type Profile = (typeof profiles)[number];
export const isProfile = (text: string): text is Profile => profiles.some((profile) => profile === text);

/** Every answer says when it lost something. */
const saysMasked = { redacted: z.literal(true).optional() };

const listing = (tool: Tool, description: string): ToolListing => ({
  name: tool.name,
  title: tool.title,
  description,
  inputSchema: z.toJSONSchema(tool.input, { io: 'input' }) as ToolListing['inputSchema'],
  outputSchema: z.toJSONSchema(tool.output.extend(saysMasked), {
    io: 'output',
  }) as ToolListing['outputSchema'],
  annotations: { ...tool.annotations, title: tool.title },
});

/** What a caller with this profile and token is offered. */
export class ToolSet {
  readonly listings: readonly ToolListing[];
  readonly #tools: ReadonlyMap<string, Tool>;

  constructor(tools: readonly Tool[]) {
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
    this.listings = tools.map((tool) => listing(tool, this.explain(tool.description)));
  }

  /** Of the profile, all whose every action the token may do. */
  static of(profile: Profile, may: (action: Action) => boolean): ToolSet {
    const chosen = profile === 'core' ? core.map((name) => byName.get(name)!) : allTools;
    return new ToolSet(chosen.filter(({ actions }) => actions.every(may)));
  }

  find(name: string): Tool | undefined {
    return this.#tools.get(name);
  }

  /** Words for this caller: names of tools that others have, and that would be called in vain, are pointed out. */
  explain(text: string): string {
    const named = new Set(text.match(/\b[a-z]+(_[a-z]+)+\b/g) ?? []);
    const absent = [...named].filter((name) => byName.has(name) && !this.#tools.has(name));
    return absent.length === 0 ? text : `${text} (Not offered here: ${absent.join(', ')}.)`;
  }
}
