import { CoppiceError } from '@coppice/protocol';
import { type ProgramOptions, type ProgramResult, runProgram } from '../programs/run-program.ts';

/** How often a rule transaction is tried that met another one of some other program. */
const transactionTries = 8;

/**
 * The one place from which programs change networks. `hostNetns` puts the whole host side into a namespace, which is
 * how the tests have a host of their own.
 */
export class NetworkCommands {
  readonly #hostNetns: string | undefined;

  constructor(hostNetns: string | undefined) {
    this.#hostNetns = hostNetns;
  }

  host(argv: readonly [string, ...string[]], options: ProgramOptions = {}): Promise<ProgramResult> {
    return this.#hostNetns === undefined
      ? runProgram(argv, options)
      : this.inside(this.#hostNetns, argv, options);
  }

  inside(
    netns: string,
    argv: readonly [string, ...string[]],
    options: ProgramOptions = {},
  ): Promise<ProgramResult> {
    return runProgram(['nsenter', `--net=${netns}`, '--', ...argv], options);
  }

  hostRules(script: string): Promise<void> {
    return this.#transaction((options) => this.host(['nft', '-f', '-'], options), script);
  }

  sandboxRules(netns: string, script: string): Promise<void> {
    return this.#transaction((options) => this.inside(netns, ['nft', '-f', '-'], options), script);
  }

  async #transaction(
    run: (options: ProgramOptions) => Promise<ProgramResult>,
    script: string,
  ): Promise<void> {
    for (let tries = 1; ; tries += 1) {
      const { exitCode, stderr } = await run({ input: script, accept: [1] });
      if (exitCode === 0) return;
      // Another program changed rules between nft's look at the kernel and its commit.
      const met = /Interrupted system call|Device or resource busy|Resource temporarily/.test(stderr);
      if (met && tries < transactionTries) continue;
      const lacking =
        /Operation not supported|Protocol not supported|Could not process rule: No such file/.test(stderr);
      throw new CoppiceError(
        lacking ? 'unsupported' : 'internal',
        `nft did not take the rules: ${stderr.trim().slice(0, 600)}`,
        lacking
          ? {
              hint: 'The kernel lacks a part of nftables (NAT, conntrack or reject); sandboxes without network work.',
            }
          : {},
      );
    }
  }
}
