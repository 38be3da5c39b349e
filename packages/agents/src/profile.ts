interface Base {
  readonly name: string;
  readonly title: string;
}

/** Any program. */
export interface CommandProfile extends Base {
  readonly adapter: 'command';
  /** What it starts, where that is not for the caller to say. */
  readonly command?: string;
}

/**
 * How an agent is installed and started. In `command`, `env` and `files`, `%model%`, `%gateway%` and `%key%` stand for the model, the
 * address of the gateway and the placeholder of a key.
 */
export interface ModelProfile extends Base {
  /** Exactly this one: agents change their ways from one version to the next. */
  readonly version: string;
  /** From npm, with their exact versions. */
  readonly packages: Readonly<Record<string, string>>;
  readonly licence: string;
  /** It may not be passed on: it is installed when a user asks for it, and by their licence. */
  readonly isProprietary?: true;
  /** It needs Node to run. */
  readonly needsNode: boolean;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Below the home directory. */
  readonly files?: Readonly<Record<string, string>>;
  readonly model: string;
  readonly memoryMb: number;
  /** What it is answered when it asks whether it may do something. */
  readonly permissions: 'allow' | 'deny';
}

export interface AcpProfile extends ModelProfile {
  readonly adapter: 'acp';
  /** In which it asks nobody before it does something: the sandbox is what holds it. */
  readonly mode?: string;
  /** How a message gets into a turn: an extension of the protocol, or a second prompt. Without one it does not. */
  readonly steer?: 'steering' | 'goose' | 'prompt';
  /** With which call a session goes on in a new process. */
  readonly resume?: 'load' | 'resume';
}

export interface PiProfile extends ModelProfile {
  readonly adapter: 'pi';
}

export type AgentProfile = CommandProfile | AcpProfile | PiProfile;
