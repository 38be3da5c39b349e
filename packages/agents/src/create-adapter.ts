import { AcpAdapter } from './acp-adapter.ts';
import type { AgentAdapter } from './adapter.ts';
import { CommandAdapter } from './command-adapter.ts';
import { PiAdapter } from './pi-adapter.ts';
import type { AgentProfile } from './profile.ts';

/** `state`: what an adapter for the same run knew, in this process or in an earlier one. */
export function createAdapter(profile: AgentProfile, state: unknown): AgentAdapter {
  switch (profile.adapter) {
    case 'command':
      return new CommandAdapter(profile);
    case 'acp':
      return new AcpAdapter(profile, state);
    case 'pi':
      return new PiAdapter(profile, state);
  }
}
