import type { Action } from '@coppice/protocol';
import type { Tool as ToolListing } from '@modelcontextprotocol/server';
import { listingOf } from './listing.ts';
import type { Tool } from './tool.ts';
import { execTools } from './tools/exec.ts';
import { fileTools } from './tools/files.ts';
import { forkTools } from './tools/fork.ts';
import { gitTools } from './tools/git.ts';
import { imageTools } from './tools/images.ts';
import { lifecycleTools } from './tools/lifecycle.ts';
import { mergeTools } from './tools/merge.ts';
import { networkTools } from './tools/network.ts';
import { orchestrateTools } from './tools/orchestrate.ts';
import { ownershipTools } from './tools/ownership.ts';
import { projectTools } from './tools/projects.ts';
import { runTools } from './tools/runs.ts';
import { snapshotTools } from './tools/snapshots.ts';
import { treeTools } from './tools/trees.ts';
import { vaultTools } from './tools/vault.ts';

/** Every tool, in the one toolset that it is of. */
export const allToolsets: Readonly<Record<string, readonly Tool[]>> = {
  workspaces: [...lifecycleTools, ...ownershipTools],
  exec: execTools,
  files: [...fileTools, ...treeTools],
  snapshots: snapshotTools,
  forks: forkTools,
  images: imageTools,
  network: networkTools,
  git: [...gitTools, ...mergeTools],
  swarms: orchestrateTools,
  runs: runTools,
  notes: vaultTools,
  projects: projectTools,
};

const allTools = Object.values(allToolsets).flat();
const byName: ReadonlyMap<string, Tool> = new Map(allTools.map((tool) => [tool.name, tool]));
export const toolNamed = (name: string): Tool | undefined => byName.get(name);

const words = (text: string): readonly string[] => text.trim().split(/\s+/);

/** Choices among the tools of several toolsets. */
const choices: Readonly<Record<string, readonly string[]>> = {
  /** What most work needs, small enough to stand in the context of any model. */
  default: words(`
    workspace_create workspace_list workspace_start workspace_destroy image_list
    exec exec_background exec_poll
    file_read file_write file_edit file_list file_diff file_merge
    snapshot_create snapshot_restore snapshot_list workspace_fork`),
  /** For models that choose badly among many. */
  core: words(`
    workspace_create exec file_write file_read file_list snapshot_create snapshot_restore workspace_destroy`),
  /** What the workflow guide for agents calls and names. */
  guide: words(`
    workspace_create workspace_list workspace_info workspace_start workspace_stop workspace_destroy workspace_fork
    exec exec_background exec_poll set_env file_read file_write file_edit file_list file_upload file_download
    snapshot_create snapshot_restore snapshot_list snapshot_diff snapshot_delete
    network_policy port_forward port_forward_remove workspace_ip git_clone workspace_git_status`),
};

export const toolsetNames: readonly string[] = [...Object.keys(choices), ...Object.keys(allToolsets), 'all'];

const toolsOf = (toolset: string): readonly Tool[] =>
  choices[toolset]?.map((name) => byName.get(name)!) ?? allToolsets[toolset] ?? allTools;

export interface Selection {
  readonly toolsets: readonly string[];
  /** Besides those of the toolsets. */
  readonly tools: readonly string[];
  /** Of these, only the tools that change nothing. */
  readonly readOnly: boolean;
  /** Whether the list has the bounds of every parameter and says what each answer holds. */
  readonly fullSchemas: boolean;
}

/** What a caller with this selection and token is offered. */
export class ToolSet {
  readonly listings: readonly ToolListing[];
  readonly #tools: ReadonlyMap<string, Tool>;

  constructor(tools: readonly Tool[], fullSchemas: boolean) {
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
    this.listings = tools.map((tool) => listingOf(tool, this.explain(tool.description), fullSchemas));
  }

  /** Of the selection, all whose every action the token may do. */
  static of(selection: Selection, may: (action: Action) => boolean): ToolSet {
    const named = selection.tools.map((name) => byName.get(name)!);
    const chosen = new Set([...selection.toolsets.flatMap(toolsOf), ...named]);
    const offered = [...chosen].filter(
      ({ actions, annotations }) =>
        actions.every(may) && (!selection.readOnly || annotations.readOnlyHint === true),
    );
    return new ToolSet(offered, selection.fullSchemas);
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
