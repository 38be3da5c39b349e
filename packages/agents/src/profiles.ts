import { acpProfiles } from './acp-profiles.ts';
import type { AgentProfile, PiProfile } from './profile.ts';

/** Looks around, writes down what it was asked for and what it found, and ends: a run without a model and without a key. */
const play = `set -e
echo "I play an agent: there is no model behind me."
echo "The task: $COPPICE_TASK"
echo "I look around in $(pwd):"
ls -A | head -n 20
{ echo "# The task"; echo; echo "$COPPICE_TASK"; echo; echo "# What is here"; echo; ls -A | head -n 20; } > AGENT-NOTES.md
echo "I wrote AGENT-NOTES.md."`;

/** Over its own protocol: over the Agent Client Protocol it cannot be steered. */
const pi: PiProfile = {
  name: 'pi',
  title: 'pi',
  adapter: 'pi',
  version: '0.87.1',
  packages: { '@earendil-works/pi-coding-agent': '0.87.1' },
  licence: 'MIT',
  needsNode: true,
  command: ['pi', '--mode', 'rpc', '--provider', 'coppice', '--model', '%model%'],
  env: { PI_OFFLINE: '1' },
  files: {
    '.pi/agent/models.json': JSON.stringify({
      providers: {
        coppice: {
          baseUrl: '%gateway%',
          apiKey: '%key%',
          api: 'anthropic-messages',
          models: [
            {
              id: '%model%',
              name: '%model%',
              reasoning: false,
              input: ['text'],
              contextWindow: 200_000,
              maxTokens: 8192,
              cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
            },
          ],
        },
      },
    }),
  },
  model: 'claude-sonnet-4-5',
  memoryMb: 2048,
  permissions: 'allow',
};

export const profiles: Readonly<Record<string, AgentProfile>> = {
  command: { name: 'command', title: 'any program', adapter: 'command' },
  scripted: {
    name: 'scripted',
    title: 'a script that plays an agent, without a model',
    adapter: 'command',
    command: play,
  },
  pi,
  ...Object.fromEntries(acpProfiles.map((profile) => [profile.name, profile])),
};
