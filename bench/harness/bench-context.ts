import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { RunningDaemon, type RunningDaemonOptions } from '@coppice/testkit';
import { PeerRoot } from '../peers/peer-root.ts';
import { PeerShell } from '../peers/peer-shell.ts';
import { interleave, type Measure } from './interleave.ts';
import type { Summary } from './summary.ts';

export interface BenchContextOptions {
  /** Few rounds, small sizes: shows that a row runs; its numbers mean nothing. */
  readonly quick: boolean;
  readonly signal: AbortSignal;
}

/** What a row works with. All that it hands out is taken down with it, in reverse order. */
export class BenchContext implements AsyncDisposable {
  readonly signal: AbortSignal;
  readonly shell: PeerShell;
  readonly directory: string;
  readonly #quick: boolean;
  readonly #resources = new AsyncDisposableStack();

  constructor({ quick, signal }: BenchContextOptions) {
    this.#quick = quick;
    this.signal = signal;
    this.directory = mkdtempSync(join(tmpdir(), 'coppice-bench-'));
    this.#resources.defer(() => rmSync(this.directory, { recursive: true, force: true }));
    this.shell = this.#resources.use(new PeerShell());
  }

  /** How often or how much: the whole, or little in a quick run. */
  amount(whole: number, quick: number): number {
    return this.#quick ? quick : whole;
  }

  /** One that has been at work for a while, as daemons have: what it and its client do often is compiled. */
  async daemon(
    config: RunningDaemonOptions['config'] = {},
    place: Pick<RunningDaemonOptions, 'netns'> = {},
  ): Promise<RunningDaemon> {
    const daemon = this.#resources.use(
      await RunningDaemon.start({ bundle: true, config: { log_level: 'warn', ...config }, ...place }),
    );
    for (let sandboxes = this.amount(50, 0); sandboxes > 0; sandboxes -= 1) {
      const sandbox = await daemon.client.sandboxes.create();
      for (let calls = 10; calls > 0; calls -= 1) await sandbox.exec(['true']);
      await sandbox.destroy();
    }
    return daemon;
  }

  /** A writable root over the same image that sandboxes have. */
  async peerRoot(name = 'root'): Promise<PeerRoot> {
    return this.#resources.use(await PeerRoot.mount(join(this.directory, name)));
  }

  /** Ended before what was handed out earlier. */
  atEnd(work: () => Promise<unknown>): void {
    this.#resources.defer(async () => {
      await work();
    });
  }

  interleave<Name extends string>(
    series: Readonly<Record<Name, Measure>>,
    {
      rounds,
      budgetS,
      turn = 1,
    }: { readonly rounds: number; readonly budgetS: number; readonly turn?: number },
  ): Promise<Record<Name, Summary>> {
    return interleave(series, {
      rounds: this.amount(rounds, 1),
      turn,
      budgetMs: budgetS * 1000,
      signal: this.signal,
    });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#resources.disposeAsync();
  }
}
