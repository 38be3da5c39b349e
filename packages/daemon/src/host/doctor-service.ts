import { existsSync } from 'node:fs';
import type { DiskStore } from '@coppice/disks';
import type { Doctor, Stray } from '@coppice/protocol';
import type { SnapshotRecord } from '../db/snapshot-table.ts';
import type { State } from '../db/state.ts';
import type { Drivers } from '../sandboxes/machine-starter.ts';
import { lossHint } from '../snapshots/memory/memory-policy.ts';
import type { Trouble } from './health-service.ts';

type Finding = Doctor['findings'][number];

export interface DoctorParts {
  readonly state: State;
  readonly drivers: Drivers;
  readonly disks: DiskStore;
  readonly defaultDriver: 'container' | 'gvisor';
  readonly backupFile: string;
  /** What was set aside. */
  readonly strays: () => Promise<readonly Stray[]>;
  /** Why the sandbox of that id cannot be reached now, though it runs. */
  readonly unreached: (sandboxId: string) => string | undefined;
  /** What a loss of power took of a snapshot. */
  readonly loss: (snapshot: SnapshotRecord) => Promise<string | undefined>;
  /** What is wrong now, as health knows it. */
  readonly troubles: () => readonly Trouble[];
  readonly network: () => Promise<{ readonly usable: boolean; readonly detail: string }>;
}

const lowSpaceBytes = 1024 ** 3;

/** What is wrong with this machine, and how to mend it. */
export class DoctorService {
  readonly #parts: DoctorParts;

  constructor(parts: DoctorParts) {
    this.#parts = parts;
  }

  async examine(): Promise<Doctor> {
    const { disks, defaultDriver } = this.#parts;
    const health: Doctor['drivers'] = {};
    const checked = await Promise.all([
      this.#guarded('drivers', () => this.#drivers(health)),
      this.#guarded('disk space', () => this.#space()),
      this.#guarded('sandboxes', () => this.#sandboxes()),
      this.#guarded('network', () => this.#network()),
      this.#guarded('strays', () => this.#strays()),
    ]);
    const findings = [
      ...this.#parts.troubles().map((trouble): Finding => ({ severity: 'error', ...trouble })),
      ...checked.flat(),
      ...this.#engine(),
      ...this.#backup(),
    ];
    return {
      healthy: !findings.some((finding) => finding.severity === 'error'),
      engine: disks.engine,
      driver: defaultDriver,
      drivers: health,
      findings,
    };
  }

  /** A check that cannot be done is a finding itself: whoever asks wants to know what is wrong. */
  async #guarded(check: string, examine: () => Promise<Finding[]>): Promise<Finding[]> {
    try {
      return await examine();
    } catch (error) {
      const message = `this could not be checked: ${(error as Error).message}`;
      return [{ severity: 'error', check, message, fix: 'Look at the other findings first.' }];
    }
  }

  async #drivers(health: Doctor['drivers']): Promise<Finding[]> {
    const { drivers, defaultDriver } = this.#parts;
    const findings: Finding[] = [];
    for (const [name, driver] of Object.entries(drivers)) {
      const probed = await driver.probe();
      health[name] = { usable: probed.usable, detail: probed.detail };
      for (const { severity, message, fix } of probed.findings) {
        const weight = name === defaultDriver || severity === 'info' ? severity : 'warning';
        findings.push({ severity: weight, check: `driver ${name}`, message, fix });
      }
      const refusal = await driver.memoryRefusal();
      if (refusal !== undefined)
        findings.push({
          severity: 'info',
          check: `driver ${name}`,
          message: `its sandboxes cannot be checkpointed with their memory: ${refusal}`,
          fix: 'Create those whose memory matters with the driver gvisor, or install CRIU 4 or later.',
        });
    }
    return findings;
  }

  async #space(): Promise<Finding[]> {
    const freeBytes = await this.#parts.disks.freeBytes();
    // A disk that is full is in trouble, which is said already.
    if (freeBytes >= lowSpaceBytes || freeBytes === 0) return [];
    return [
      {
        severity: 'warning',
        check: 'disk space',
        message: `${Math.floor(freeBytes / 1024 ** 2)} MiB are free for the disks of sandboxes`,
        fix: 'Delete snapshots and sandboxes that are no longer needed, or give the home a larger disk.',
      },
    ];
  }

  async #network(): Promise<Finding[]> {
    const { usable, detail } = await this.#parts.network();
    if (usable) return [];
    return [
      {
        severity: 'warning',
        check: 'network',
        message: `sandboxes can have no network here: ${detail}`,
        fix: 'Install nftables and iproute2, and use a kernel with nf_tables; sandboxes without network work.',
      },
    ];
  }

  async #sandboxes(): Promise<Finding[]> {
    const { state } = this.#parts;
    const sandboxes = state.sandboxes.all();
    const failed = sandboxes.filter((sandbox) => sandbox.state === 'failed');
    const losses = await Promise.all(
      state.snapshots.all().map(async (snapshot) => ({ snapshot, loss: await this.#parts.loss(snapshot) })),
    );
    return [
      ...failed.map(
        (sandbox): Finding => ({
          severity: 'warning',
          check: 'sandboxes',
          message: `sandbox ${sandbox.name} failed: ${sandbox.failure}`,
          fix: `Start it again with \`coppice start ${sandbox.name}\`, or remove it.`,
        }),
      ),
      ...sandboxes.flatMap(({ id, name }): Finding[] => {
        const trouble = this.#parts.unreached(id);
        if (trouble === undefined) return [];
        const message = `sandbox ${name} runs, but cannot be reached: ${trouble}`;
        const fix = `It is tried again all the time. To give up what runs in it: coppice stop ${name} && coppice start ${name}`;
        return [{ severity: 'warning', check: 'sandboxes', message, fix }];
      }),
      ...losses.flatMap(({ snapshot: { id, sandboxName, name, memoryBytes }, loss }): Finding[] => {
        if (loss === undefined) return [];
        const message = `snapshot ${id} (${sandboxName}:${name}): ${loss}`;
        const fix = memoryBytes === null ? 'Import it from an export, or delete it.' : lossHint;
        return [{ severity: 'error', check: 'snapshots', message, fix }];
      }),
    ];
  }

  async #strays(): Promise<Finding[]> {
    const strays = await this.#parts.strays();
    return strays.map(({ id, kind, created_at: at }) => ({
      severity: 'warning',
      check: 'strays',
      message: `the database does not know the ${kind} ${id} of ${at}; it was set aside`,
      fix: `Bring its files back as a snapshot: coppice strays --keep ${id}. Or delete them: coppice strays --delete ${id}.`,
    }));
  }

  #engine(): Finding[] {
    const { engine } = this.#parts.disks;
    if (engine === 'btrfs') return [];
    const memory = engine === 'copy' ? ', and checkpoints share none of their memory' : '';
    return [
      {
        severity: 'warning',
        check: 'engine',
        message: `disks are kept by the engine ${engine}: snapshots and forks take time with the number of files, and disks are not held to their size${memory}`,
        fix: 'Give this machine a kernel with btrfs and loop devices; a new home then uses them.',
      },
    ];
  }

  #backup(): Finding[] {
    const { backupFile } = this.#parts;
    if (existsSync(backupFile)) return [];
    return [
      {
        severity: 'info',
        check: 'backup',
        message: `there is no backup of the database yet; it will be ${backupFile}`,
        fix: 'Nothing to do: it is written within a minute of the first change.',
      },
    ];
  }
}
