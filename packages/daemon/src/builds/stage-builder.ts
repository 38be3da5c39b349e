import { posix } from 'node:path';
import { type BuildEvent, CoppiceError } from '@coppice/protocol';
import { archiveIn } from './archive-source.ts';
import { type BuildBench, cacheTag, failedTag, type Worker } from './build-bench.ts';
import type { BuildContext } from './build-context.ts';
import { configure, type Reader } from './configure.ts';
import { type CopySource, copyFiles, parseOwner } from './copy-files.ts';
import { badLine, type Instruction, isHeredocWord, unsupportedLine } from './dockerfile/parse-dockerfile.ts';
import type { Stage } from './dockerfile/read-stages.ts';
import { expand, expandText, rawWords } from './dockerfile/words.ts';
import { heredocSource } from './heredoc-source.ts';
import { parseMount, type RunMount, withMounts } from './run-mounts.ts';
import { envOf, keyOf, type Position, type StageState } from './stage-state.ts';

export interface StageParts {
  readonly bench: BuildBench;
  readonly context: BuildContext | undefined;
  readonly escapeWith: string;
  readonly args: Readonly<Record<string, string>>;
  readonly globals: Readonly<Record<string, string | undefined>>;
  readonly platform: Readonly<Record<string, string>>;
  readonly secrets: Readonly<Record<string, string>>;
  readonly cacheDir: string;
  readonly cached: (key: string) => string | undefined;
  /** Files of a stage or an image that COPY names. */
  readonly positionOf: (from: string, line: number) => Promise<Position>;
  readonly emit: (event: BuildEvent) => void;
  readonly step: { now: number; readonly total: number };
  readonly internet: boolean;
  readonly signal: AbortSignal | undefined;
  readonly createdAt: string;
}

const mostShownBytes = 4 << 20;

/** Does what the instructions of one stage say, or finds that it was done before. */
export class StageBuilder {
  readonly #stage: Stage;
  readonly #state: StageState;
  readonly #parts: StageParts;
  #worker: Worker | undefined;

  constructor(stage: Stage, state: StageState, parts: StageParts) {
    this.#stage = stage;
    this.#state = state;
    this.#parts = parts;
  }

  async run(): Promise<void> {
    for (const instruction of this.#stage.instructions) {
      this.#parts.signal?.throwIfAborted();
      this.#parts.step.now += 1;
      await this.#do(instruction);
    }
    if (this.#worker !== undefined) await this.#parts.bench.close(this.#worker);
  }

  async #do(instruction: Instruction): Promise<void> {
    const { keyword } = instruction;
    const changesFiles = ['RUN', 'COPY', 'ADD', 'WORKDIR'].includes(keyword);
    this.#state.history.push({
      created: this.#parts.createdAt,
      created_by: instruction.text,
      changesFiles,
    });
    if (keyword === 'RUN') return this.#run(instruction);
    if (keyword === 'COPY' || keyword === 'ADD') return this.#copy(instruction);
    this.#report(instruction, 'running');
    if (keyword === 'ARG') this.#declare(instruction);
    else configure(this.#state, instruction, this.#reader());
    if (keyword === 'WORKDIR') {
      const path = this.#state.config.WorkingDir!;
      await this.#change(instruction, ['WORKDIR', path], (worker) => worker.files.makeDirectory(path));
    } else this.#report(instruction, 'done');
  }

  #reader(): Reader {
    const { escapeWith } = this.#parts;
    const variables = { ...this.#state.args, ...envOf(this.#state) };
    return { escapeWith, variables, read: (text) => expand(text, variables, escapeWith) };
  }

  #declare({ rest, line }: Instruction): void {
    const { args, globals, platform, escapeWith } = this.#parts;
    const { read } = this.#reader();
    for (const word of rawWords(rest, escapeWith)) {
      const [name = '', ...value] = word.split('=');
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name))
        throw badLine(line, `${name.slice(0, 60)} is no variable name`);
      const preset = value.length === 0 ? globals[name] : read(value.join('='));
      this.#state.args[name] = args[name] ?? preset ?? platform[name];
    }
  }

  async #run(instruction: Instruction): Promise<void> {
    const { flags, line, list, rest, heredocs } = instruction;
    const { config, shell, args } = this.#state;
    const { read } = this.#reader();
    const mounts: RunMount[] = [];
    let network: 'default' | 'none' = 'default';
    for (const { name, value } of flags) {
      if (name === 'mount') mounts.push(parseMount(value, instruction, config.WorkingDir || '/', read));
      else if (name === 'network' && (value === 'none' || value === 'default')) network = value;
      else throw unsupportedLine(line, `RUN --${name}${value === '' ? '' : `=${value}`}`);
    }
    const [only] = heredocs;
    const script =
      heredocs.length === 1 && isHeredocWord(rest.trim())
        ? only!.content
        : [rest, ...heredocs.map(({ name, content }) => `${content}${name}`)].join('\n');
    const declared = Object.entries(args).filter(
      (entry): entry is [string, string] => entry[1] !== undefined,
    );
    const env = { ...Object.fromEntries(declared), ...envOf(this.#state) };
    const command = list === undefined ? [...shell, script] : [...list];
    const user = config.User || 'root';
    const cwd = config.WorkingDir || '/';
    const froms = await Promise.all(mounts.map((mount) => this.#mountKey(mount, line)));
    const key = ['RUN', command, env, user, cwd, network, mounts, froms];
    await this.#change(instruction, key, (worker) =>
      this.#withNetwork(worker, network, async () =>
        withMounts(
          mounts,
          {
            files: worker.files,
            diskBytes: (await this.#parts.bench.services.sandboxes.get(worker.id)).disk_mb * 2 ** 20,
            secrets: this.#parts.secrets,
            cacheDir: this.#parts.cacheDir,
            sourceOf: async (from) => (await this.#source(from, line)).source,
          },
          (secrets) => this.#exec(worker, { command, env: { ...env, ...secrets }, user, cwd }, instruction),
        ),
      ),
    );
  }

  /** What a bind mount shows is part of what the command depends on. */
  async #mountKey({ type, from, source }: RunMount, line: number): Promise<string> {
    if (type !== 'bind') return '';
    if (from !== undefined) return (await this.#parts.positionOf(from, line)).key;
    return (await this.#parts.context?.digest(source)) ?? '';
  }

  async #withNetwork(worker: Worker, network: 'default' | 'none', work: () => Promise<void>): Promise<void> {
    const { bench, internet } = this.#parts;
    if (network === 'default' || !internet) return work();
    await bench.services.network.patch(worker.id, { allow_internet: false });
    try {
      await work();
    } finally {
      await bench.services.network.patch(worker.id, { allow_internet: true });
    }
  }

  async #exec(
    worker: Worker,
    input: { command: string[]; env: Record<string, string>; user: string; cwd: string },
    { text, line }: Instruction,
  ): Promise<void> {
    const { bench, emit, signal, internet } = this.#parts;
    const running = await bench.services.exec.stream(worker.id, input);
    const stop = (): void => running.close();
    signal?.addEventListener('abort', stop, { once: true });
    let shownBytes = 0;
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
    try {
      await running.endStdin();
      for await (const { stream, data } of running.output) {
        shownBytes += data.length;
        // Nobody waits for who reads them, so that they must not pile up.
        if (shownBytes - data.length > mostShownBytes) continue;
        const shown = decoders[stream].decode(data, { stream: true });
        if (shown !== '') emit({ type: 'output', stream, text: shown });
        if (shownBytes > mostShownBytes)
          emit({ type: 'warning', text: `a step may say ${mostShownBytes} bytes; the rest is not shown` });
      }
      const { exit_code: code, signal: killed } = await running.exit;
      signal?.throwIfAborted();
      if (code === 0) return;
      const how = killed === null ? `ended with ${code}` : `was ended by signal ${killed}`;
      throw new CoppiceError('build_failed', `line ${line} of the Dockerfile: ${text.slice(0, 200)} ${how}`, {
        details: { line, exit_code: code },
        hint: internet ? '' : 'It ran without a network: if it needs one, build with --network internet.',
      });
    } finally {
      signal?.removeEventListener('abort', stop);
      running.close();
    }
  }

  async #copy(instruction: Instruction): Promise<void> {
    const { flags, line, keyword, list, heredocs } = instruction;
    const { read, variables, escapeWith } = this.#reader();
    let from: string | undefined;
    let chown: string | undefined;
    let mode: number | undefined;
    for (const { name, value } of flags) {
      const text = read(value);
      if (name === 'from' && keyword === 'COPY') from = text;
      else if (name === 'chown') chown = text;
      else if (name === 'chmod' && /^0?[0-7]{3,4}$/.test(text)) mode = Number.parseInt(text, 8);
      else if (name !== 'link')
        throw unsupportedLine(line, `${keyword} --${name}${value === '' ? '' : `=${value}`}`);
    }
    const words = list === undefined ? rawWords(instruction.rest, escapeWith).map(read) : list.map(read);
    const to = words.pop();
    if (to === undefined || words.length === 0) throw badLine(line, `${keyword} needs a source and a target`);
    const isUrl = words.find((word) => /^(?:https?|ftp|git@|git:)/.test(word) || /\.git(?:#|$)/.test(word));
    if (keyword === 'ADD' && isUrl !== undefined)
      throw unsupportedLine(line, `ADD of ${isUrl}`, 'Get it in a RUN, or put it beside the Dockerfile.');
    const texts = heredocs.map(({ name, content, expands }) => ({
      name,
      content: expands ? expandText(content, variables, escapeWith) : content,
    }));
    const plain = words.filter((word) => !isHeredocWord(word));
    const { source, digest } = await this.#source(from, line);
    const found: string[] = [];
    for (const pattern of plain) {
      const paths = await source.find(pattern);
      if (paths.length === 0)
        throw new CoppiceError(
          'not_found',
          `line ${line} of the Dockerfile: there is no ${pattern} to copy`,
          {
            hint:
              from === undefined
                ? 'Paths are below the directory that is built from. Does .dockerignore leave it out?'
                : `Paths are those of ${from}.`,
          },
        );
      found.push(...paths);
    }
    const digests = await Promise.all(found.map((path) => digest(path)));
    const target = to === '.' || to === './' ? `${this.#state.config.WorkingDir || ''}/` : to;
    const absolute = posix.isAbsolute(target)
      ? target
      : posix.join(this.#state.config.WorkingDir || '/', target);
    const key = [keyword, found, digests, texts, absolute, chown, mode];
    await this.#change(instruction, key, async (worker) => {
      const accounts = async () => ({
        passwd: await worker.files.text('/etc/passwd'),
        group: await worker.files.text('/etc/group'),
      });
      const owner = chown === undefined ? undefined : parseOwner(chown, await accounts());
      const sources = [
        ...(await Promise.all(
          found.map(async (path) => ({
            source: (keyword === 'ADD' ? await archiveIn(source, path, line) : undefined) ?? source,
            path,
          })),
        )),
        ...texts.map((text) => ({ source: heredocSource(text.content), path: text.name })),
      ];
      await copyFiles(sources, absolute, worker.files, { owner, mode });
    });
  }

  /** Where files come from, and what tells whether they are still the same. */
  async #source(
    from: string | undefined,
    line: number,
  ): Promise<{ source: CopySource; digest: (path: string) => Promise<string> }> {
    const { context, bench } = this.#parts;
    if (from === undefined) {
      if (context !== undefined) return { source: context, digest: (path) => context.digest(path) };
      throw badLine(line, 'there are no files to copy from: the build was given no directory');
    }
    const position = await this.#parts.positionOf(from, line);
    const files = async (): Promise<Worker['files']> => (await bench.openToRead(position)).files;
    return {
      source: {
        find: async (pattern) => {
          // What is plainly named needs no look as long as the step was done before.
          return /[*?[]/.test(pattern) ? (await files()).find(pattern) : [posix.join('/', pattern)];
        },
        isDirectory: async (path) => (await files()).isDirectory(path),
        items: async function* (path) {
          const place = await files();
          if ((await place.stat(path)) === undefined)
            throw new CoppiceError('not_found', `line ${line} of the Dockerfile: ${from} has no ${path}`);
          yield* place.items(path);
        },
      },
      digest: async () => position.key,
    };
  }

  /** Takes what an earlier build left of the same step, or does it and keeps what came of it. */
  async #change(
    instruction: Instruction,
    parts: readonly unknown[],
    work: (worker: Worker) => Promise<void>,
  ): Promise<void> {
    const { position } = this.#state;
    const key = keyOf(position.key, ...parts);
    const known = this.#parts.cached(key);
    if (known !== undefined) {
      this.#state.position = { ...position, snapshotId: known, key };
      this.#report(instruction, 'cached');
      return;
    }
    this.#report(instruction, 'running');
    const worker = await this.#workerAt(position);
    try {
      await work(worker);
    } catch (error) {
      throw await this.#keepFailure(worker, instruction, error);
    }
    const { services } = this.#parts.bench;
    const snapshot = await services.snapshots.create(
      worker.id,
      {
        name: `step-${this.#parts.step.now}`,
        note: instruction.text,
        tags: [cacheTag, key],
        memory: false,
      },
      { by: 'admin' },
    );
    worker.key = key;
    this.#state.position = { ...position, snapshotId: snapshot.id, key };
    this.#report(instruction, 'done');
  }

  async #workerAt(position: Position): Promise<Worker> {
    if (this.#worker?.key === position.key) return this.#worker;
    if (this.#worker !== undefined) await this.#parts.bench.close(this.#worker);
    this.#worker = undefined;
    this.#worker = await this.#parts.bench.open(position);
    return this.#worker;
  }

  /** The files as the failed step left them, for people to look into. */
  async #keepFailure(worker: Worker, { text }: Instruction, error: unknown): Promise<unknown> {
    if (!(error instanceof CoppiceError) || error.code !== 'build_failed') return error;
    const { services } = this.#parts.bench;
    const kept = await services.snapshots.create(
      worker.id,
      { name: 'failed', note: `failed: ${text}`, tags: [failedTag], memory: false },
      { by: 'admin' },
    );
    const { WorkingDir: cwd } = this.#state.config;
    const look = `coppice shell ${kept.id}${cwd ? ` -w ${cwd}` : ''}`;
    return new CoppiceError(error.code, error.message, {
      hint: `${error.hint} Look into it: ${look}`.trim(),
      details: { ...error.details, snapshot_id: kept.id },
      cause: error,
    });
  }

  #report({ text, line }: Instruction, state: 'running' | 'cached' | 'done'): void {
    const { emit, step } = this.#parts;
    const { name, index } = this.#stage;
    emit({
      type: 'step',
      step: step.now,
      steps: step.total,
      stage: name ?? String(index),
      line,
      text,
      state,
    });
  }
}
