import { modelVariables, placeholderKey } from '@coppice/protocol';
import type { AgentTask, Launch } from './adapter.ts';
import type { ModelProfile } from './profile.ts';

/** Where programs of agents are in their images. */
export const toolbox = '/opt/coppice/agents';

/** How an agent that asks a model is started: all that it holds of a key is the placeholder. */
export function launchOf(
  { command, env, files = {}, model }: ModelProfile,
  task: AgentTask,
  more: readonly string[] = [],
): Launch {
  const values: Readonly<Record<string, string>> = {
    model: task.model ?? model,
    gateway: modelVariables.ANTHROPIC_BASE_URL!,
    key: placeholderKey,
  };
  const filled = (text: string): string =>
    text.replaceAll(/%(model|gateway|key)%/g, (_, name: string) => values[name]!);
  return {
    command: [...command, ...more].map(filled),
    takesInput: true,
    env: {
      ...Object.fromEntries(Object.entries(env).map(([name, value]) => [name, filled(value)])),
      PATH: `${toolbox}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`,
    },
    files: Object.entries(files).map(([path, text]) => ({ path, text: filled(text) })),
  };
}
