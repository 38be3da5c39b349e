import { type CreateSandbox, defaultProject, networkPolicySchema } from '@coppice/protocol';
import type { HostMount } from '@coppice/runtime';
import type { Config } from '../config/config.ts';
import type { SandboxRecord } from '../db/sandbox-table.ts';
import type { ImageRef } from '../images/image-service.ts';
import type { MachineStarter } from './machine-starter.ts';
import { hostnameOf } from './sandbox-names.ts';
import { shapeFrom } from './shape.ts';

/** What a new sandbox shall be; the creator adds what only it knows. */
export type SandboxPlan = Omit<
  SandboxRecord,
  | 'id'
  | 'state'
  | 'failure'
  | 'address'
  | 'pauseKeep'
  | 'createdAtMs'
  | 'startedAtMs'
  | 'activeAtMs'
  | 'lifetimeWarned'
>;

export type NamedInput = CreateSandbox & {
  readonly name: string;
  readonly owner?: string | null | undefined;
  readonly runId?: string | undefined;
  readonly boundMounts?: readonly HostMount[];
};

/** Says what a new sandbox shall be. */
export class SandboxPlanner {
  readonly #config: Config;
  readonly #starter: MachineStarter;

  constructor(config: Config, starter: MachineStarter) {
    this.#config = config;
    this.#starter = starter;
  }

  /** What the input asks for, and defaults where it says nothing. */
  plan(input: NamedInput, image: ImageRef): SandboxPlan {
    const { defaults, default_driver: defaultDriver } = this.#config;
    const driver = input.driver ?? defaultDriver;
    this.#starter.driver(driver);
    return {
      ...shapeFrom(input, {
        cpus: defaults.cpus,
        memoryMb: defaults.memory_mb,
        diskMb: defaults.disk_mb,
        pids: defaults.pids,
        env: {},
        labels: {},
        network: networkPolicySchema.parse({}),
        idleTimeoutS: defaults.idle_timeout_s,
        idleAction: defaults.idle_action,
        maxLifetimeS: null,
      }),
      name: input.name,
      project: input.project ?? defaultProject,
      owner: input.owner ?? null,
      runId: input.runId ?? null,
      hostname: hostnameOf(input.name),
      imageId: image.id,
      imageName: image.name,
      driver,
      mounts: input.boundMounts ?? [],
      parentSnapshotId: null,
      parentSandboxId: null,
      baseSnapshotId: null,
    };
  }
}
