import type { Cli } from '../cli.ts';

export interface DemoStep {
  readonly step: string;
  readonly ms: number;
}

/** A demo in steps that are shown and timed. Whatever happens, it cleans up after itself. */
export abstract class StagedDemo {
  protected readonly cli: Cli;
  readonly #steps: DemoStep[] = [];

  constructor(cli: Cli) {
    this.cli = cli;
  }

  async run(): Promise<readonly DemoStep[]> {
    try {
      await this.show();
    } finally {
      await this.cleanUp();
    }
    return this.#steps;
  }

  protected abstract show(): Promise<void>;
  protected abstract cleanUp(): Promise<void>;

  protected async step<T>(step: string, work: () => Promise<T>): Promise<T> {
    const startedMs = performance.now();
    const result = await this.cli.out.during(step, work);
    const ms = performance.now() - startedMs;
    this.#steps.push({ step, ms: Math.round(ms * 10) / 10 });
    const { out } = this.cli;
    this.say(`${out.paint('green', '✓')} ${step}  ${out.paint('dim', `${ms.toFixed(1)} ms`)}`);
    return result;
  }

  protected say(line: string): void {
    if (!this.cli.out.isJson) this.cli.io.stdout.write(`${line}\n`);
  }
}
