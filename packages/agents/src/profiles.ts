import type { AdapterName } from '@coppice/protocol';

/** What is particular to an agent. */
export interface AgentProfile {
  readonly name: string;
  readonly title: string;
  readonly adapter: AdapterName;
  /** What it starts, where that is not for the caller to say. */
  readonly command?: string;
}

/** Looks around, writes down what it was asked for and what it found, and ends: a run without a model and without a key. */
const play = `set -e
echo "I play an agent: there is no model behind me."
echo "The task: $COPPICE_TASK"
echo "I look around in $(pwd):"
ls -A | head -n 20
{ echo "# The task"; echo; echo "$COPPICE_TASK"; echo; echo "# What is here"; echo; ls -A | head -n 20; } > AGENT-NOTES.md
echo "I wrote AGENT-NOTES.md."`;

export const profiles: Readonly<Record<string, AgentProfile>> = {
  command: { name: 'command', title: 'any program', adapter: 'command' },
  scripted: {
    name: 'scripted',
    title: 'a script that plays an agent, without a model',
    adapter: 'command',
    command: play,
  },
};
