import type { AgentAdapter } from './adapter.ts';
import { CommandAdapter } from './command-adapter.ts';
import type { AgentProfile } from './profiles.ts';

/** `state`: what an adapter for the same run knew, in this process or in an earlier one. */
export function createAdapter(profile: AgentProfile, _state: unknown): AgentAdapter {
  return new CommandAdapter(profile);
}
