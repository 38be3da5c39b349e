import { CoppiceError } from '@coppice/protocol';
import type { Coppice, Sandbox } from '@coppice/sdk';
import { eventually } from '@coppice/testkit';
import { KnownFiles } from './known-files.ts';

interface Owned {
  readonly sandbox: Sandbox;
  readonly name: string;
  readonly files: KnownFiles;
  readonly snapshots: Map<string, KnownFiles>;
}

const place = '/root/soak';
const paths = ['a', 'b', 'c', 'd'].map((name) => `${place}/${name}`);
const mostSnapshots = 3;

/** The answer was lost, or nobody was there to give one: what was asked may have happened. */
const isLost = (error: unknown): boolean => error instanceof CoppiceError && error.code === 'unavailable';

/** One user of the daemon, with sandboxes that nobody else touches: it knows what must be in them. */
export class SoakClient {
  readonly #coppice: Coppice;
  readonly #label: string;
  readonly #random: () => number;
  readonly #owned: Owned[] = [];
  #count = 0;

  constructor(coppice: Coppice, label: string, random: () => number) {
    this.#coppice = coppice;
    this.#label = label;
    this.#random = random;
  }

  async createSandboxes(count: number): Promise<void> {
    for (let index = 0; index < count; index += 1) {
      const name = `${this.#label}-${index}`;
      const sandbox = await this.#coppice.sandboxes.create({ name, memory_mb: 64 });
      this.#owned.push({ sandbox, name, files: new KnownFiles(), snapshots: new Map() });
    }
  }

  /** One piece of random work; returns what it was. */
  async work(): Promise<string> {
    const owned = this.#pick(this.#owned);
    const works = {
      write: () => this.#write(owned),
      read: () => this.#read(owned, this.#pick(paths)),
      exec: () => this.#exec(owned),
      snapshot: () => this.#snapshot(owned),
      restore: () => this.#restore(owned),
      fork: () => this.#forkAndMerge(owned),
      restart: () => this.#stopAndStart(owned),
    };
    const name = this.#pick([
      ...(['write', 'write', 'write', 'write', 'read', 'read', 'read', 'exec'] as const),
      ...(['snapshot', 'restore', 'fork', 'restart'] as const),
    ]);
    try {
      await works[name]();
    } catch (error) {
      throw new Error(`${name} on ${owned.name} failed: ${(error as Error).message}`, { cause: error });
    }
    return name;
  }

  /** Every file that was acknowledged is there. */
  async verify(): Promise<number> {
    let checked = 0;
    for (const owned of this.#owned) {
      await this.#ready(owned);
      for (const path of paths) {
        await this.#read(owned, path);
        checked += 1;
      }
      for (const [snapshot, files] of owned.snapshots) {
        await owned.sandbox.restore(snapshot);
        owned.files.became(files);
        for (const path of paths) await this.#read(owned, path);
        checked += 1;
      }
    }
    return checked;
  }

  async #write({ sandbox, files }: Owned): Promise<void> {
    const path = this.#pick(paths);
    const text = `${this.#label} ${this.#next()}`;
    const { lost } = await this.#ask(() => sandbox.files.write(path, text));
    if (lost) files.mayHaveWritten(path, text);
    else files.wrote(path, text);
  }

  async #read({ sandbox, files, name }: Owned, path: string): Promise<void> {
    const answer = await this.#ask(async () => {
      try {
        return await sandbox.files.readText(path);
      } catch (error) {
        if (error instanceof CoppiceError && error.code === 'not_found') return null;
        throw error;
      }
    });
    if (!answer.lost) files.check(path, answer.value, name);
  }

  async #exec({ sandbox, name }: Owned): Promise<void> {
    const said = `hello ${this.#next()}`;
    const answer = await this.#ask(() => sandbox.exec(['echo', said]));
    if (!answer.lost && answer.value.stdout !== `${said}\n`)
      throw new Error(`${name}: echo ${said} said ${JSON.stringify(answer.value)}`);
  }

  async #snapshot(owned: Owned): Promise<void> {
    const { sandbox, snapshots } = owned;
    const name = `s${this.#next()}`;
    // As it was when it was asked for: this client alone writes here, one call at a time.
    const files = owned.files.copy();
    const { lost } = await this.#ask(() => sandbox.snapshot({ name }));
    if (!lost || (await this.#insist(() => sandbox.snapshots())).some((snapshot) => snapshot.name === name))
      snapshots.set(name, files);
    const [oldest] = snapshots.keys();
    if (snapshots.size <= mostSnapshots || oldest === undefined) return;
    snapshots.delete(oldest);
    await this.#ask(() => this.#coppice.snapshots.delete(`${owned.name}:${oldest}`));
  }

  async #restore({ sandbox, files, snapshots }: Owned): Promise<void> {
    if (snapshots.size === 0) return;
    const [name, then] = this.#pick([...snapshots]);
    const { lost } = await this.#ask(() => sandbox.restore(name));
    if (lost) files.mayHaveBecome(then);
    else files.became(then);
  }

  /** A fork that writes one file, which is merged back; then the fork goes. */
  async #forkAndMerge(owned: Owned): Promise<void> {
    const name = `${this.#label}-fork-${this.#next()}`;
    const path = this.#pick(paths);
    const text = `${name} was merged`;
    const forks = await this.#ask(() => owned.sandbox.fork({ name }));
    if (!forks.lost) {
      const fork = forks.value.sandboxes[0]!;
      const written = await this.#ask(() => fork.files.write(path, text));
      if (!written.lost) {
        const merged = await this.#ask(() => owned.sandbox.merge(fork));
        if (merged.lost) owned.files.mayHaveWritten(path, text);
        else owned.files.wrote(path, text);
      }
    }
    await this.#destroy(name);
  }

  async #destroy(name: string): Promise<void> {
    await this.#insist(async () => {
      const found = (await this.#coppice.sandboxes.list()).find((sandbox) => sandbox.name === name);
      if (found === undefined) return;
      try {
        await this.#coppice.sandboxes.at(found.id).destroy();
      } catch (error) {
        // What the dead daemon had begun, the next one finished in between.
        if (!(error instanceof CoppiceError && error.code === 'not_found')) throw error;
      }
    });
  }

  async #stopAndStart(owned: Owned): Promise<void> {
    await this.#ask(() => owned.sandbox.stop({ grace_s: 0 }));
    await this.#ready(owned);
  }

  async #ready({ sandbox }: Owned): Promise<void> {
    await this.#insist(() => sandbox.start());
  }

  /** Asks until there is an answer: for what may be done twice. */
  async #insist<T>(call: () => Promise<T>): Promise<T> {
    for (;;) {
      const answer = await this.#ask(call);
      if (!answer.lost) return answer.value;
    }
  }

  /** Asks once. A daemon that was killed meanwhile is waited for; any other failure is a finding. */
  async #ask<T>(call: () => Promise<T>): Promise<{ lost: false; value: T } | { lost: true }> {
    try {
      return { lost: false, value: await call() };
    } catch (error) {
      if (!isLost(error)) throw error;
      await this.#untilItAnswers();
      return { lost: true };
    }
  }

  async #untilItAnswers(): Promise<void> {
    await eventually(
      'the daemon answers again',
      async () => {
        try {
          await this.#coppice.health();
          return true;
        } catch (error) {
          if (isLost(error)) return false;
          throw error;
        }
      },
      300_000,
    );
  }

  #pick<T>(from: readonly T[]): T {
    return from[Math.floor(this.#random() * from.length)]!;
  }

  #next(): number {
    this.#count += 1;
    return this.#count;
  }
}
