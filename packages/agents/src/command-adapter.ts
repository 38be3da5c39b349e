import type { AgentAdapter, AgentTask, Launch, Reaction, Steering } from './adapter.ts';
import type { CommandProfile } from './profile.ts';

/** Any program: what it writes is its output, it is done when it ends, and it fetches its messages itself if it likes. */
export class CommandAdapter implements AgentAdapter {
  readonly fetchesMessages = true;
  readonly framing = 'chunks';
  readonly steering: Steering = 'none';
  readonly keepsSteered = false;
  readonly canResume = false;
  readonly state = null;

  readonly #profile: CommandProfile;

  constructor(profile: CommandProfile) {
    this.#profile = profile;
  }

  launch({ command, task }: AgentTask): Launch {
    return { command: this.#profile.command ?? command ?? ['true'], env: { COPPICE_TASK: task }, files: [] };
  }

  open(): Reaction {
    return {};
  }

  /** One event for all that came at once: a program may write a hundred thousand lines. */
  line(stream: 'stdout' | 'stderr', text: string): Reaction {
    return { events: [{ type: 'agent.output', data: { stream, text } }] };
  }

  prompt(): Reaction {
    return {};
  }

  steer(): undefined {
    return undefined;
  }

  interrupt(): Reaction {
    return {};
  }

  ping(): undefined {
    return undefined;
  }
}
