import { printable } from '@coppice/console';
import { Workspace } from '../index.ts';
import type { ParsedArguments } from './arguments.ts';
import type { JvsIo } from './jvs-io.ts';

/** One command that was given: its arguments, its workspace, its output. */
export class JvsContext implements Disposable {
  readonly args: ParsedArguments;
  readonly io: JvsIo;
  readonly directory: string;
  readonly warnings: string[] = [];
  #workspace: Workspace | undefined;
  #json: boolean;

  constructor(args: ParsedArguments, io: JvsIo, directory: string) {
    this.args = args;
    this.io = io;
    this.directory = directory;
    this.#json = args.has('json');
  }

  readonly notice = (message: string): void => {
    this.warnings.push(message);
    this.io.stderr.write(`jvs: ${printable(message)}\n`);
  };

  async #openWorkspace(): Promise<Workspace> {
    this.#workspace ??= await Workspace.open({
      directory: this.directory,
      notice: this.notice,
      env: this.io.env,
      progress: !this.args.has('no-progress'),
    });
    return this.#workspace;
  }

  #readSettings({ session }: Workspace): void {
    if (session.settings.output_format === 'json') this.#json = true;
  }

  /** Opens the workspace around the directory; what killed commands left is settled first. */
  async open(): Promise<Workspace> {
    const workspace = await this.#openWorkspace();
    this.#readSettings(workspace);
    await workspace.recover();
    return workspace;
  }

  /** The same for one that may be damaged in any way: to say how is up to the command. */
  async openDamaged(): Promise<Workspace> {
    const workspace = await this.#openWorkspace();
    try {
      this.#readSettings(workspace);
      await workspace.recover();
    } catch (error) {
      this.notice(`not recovered: ${(error as Error).message}`);
    }
    return workspace;
  }

  get json(): boolean {
    return this.#json;
  }

  get colour(): boolean {
    return this.io.stdout.isTTY === true && !this.io.env.NO_COLOR && !this.args.has('no-color');
  }

  /** The answer: one JSON document, or lines for people. */
  answer(value: unknown, lines: () => readonly string[]): void {
    if (this.#json) this.io.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
    else for (const line of lines()) this.io.stdout.write(`${line}\n`);
  }

  [Symbol.dispose](): void {
    this.#workspace?.[Symbol.dispose]();
  }
}
