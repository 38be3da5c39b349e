import type { healthSchema } from '@coppice/protocol';
import type { z } from 'zod';

export type Health = z.output<typeof healthSchema>;

/** Something that is wrong now, known to whoever keeps an eye on it. */
export interface Trouble {
  /** A short name of what is in trouble; anybody may ask for it. */
  readonly check: string;
  readonly message: string;
  readonly fix: string;
}

export interface HealthParts {
  readonly version: string;
  readonly uptimeS: () => number;
  readonly sandboxes: () => number;
  /** Each says what it knows without looking for it: health is asked often. */
  readonly watched: readonly (() => readonly Trouble[])[];
}

/** Whether the daemon is well. What is wrong is named here; the doctor says it in full. */
export class HealthService {
  readonly #parts: HealthParts;

  constructor(parts: HealthParts) {
    this.#parts = parts;
  }

  troubles(): Trouble[] {
    return this.#parts.watched.flatMap((watch) => watch());
  }

  async check(): Promise<Health> {
    const { version, uptimeS, sandboxes } = this.#parts;
    const problems = [...new Set(this.troubles().map(({ check }) => check))];
    return {
      status: problems.length === 0 ? 'ok' : 'degraded',
      problems,
      version,
      uptime_s: uptimeS(),
      sandboxes: sandboxes(),
    };
  }
}
