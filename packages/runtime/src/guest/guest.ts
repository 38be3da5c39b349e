/**
 * What the daemon may ask of the agent that is PID 1 in a sandbox. Every path here is a path inside
 * the sandbox and is resolved there by the agent, never on the host.
 */
export interface ProcessRequest {
  readonly argv: readonly [string, ...string[]];
  /** The whole environment of the process: the agent adds nothing but HOME, USER, SHELL and PATH when they are absent. */
  readonly env?: Readonly<Record<string, string>>;
  /** Default: the home directory of the user. */
  readonly cwd?: string;
  /** A name or a numeric id from the sandbox's own /etc/passwd; default root. */
  readonly user?: string;
  /** Kill the whole process group after this time. */
  readonly timeoutMs?: number;
}

export interface ExitStatus {
  /** Exit code, or null when a signal ended it. */
  readonly code: number | null;
  /** Signal number, or null when it exited by itself. */
  readonly signal: number | null;
  readonly timedOut: boolean;
}

export interface OutputChunk {
  readonly stream: 'stdout' | 'stderr';
  readonly data: Buffer;
}

/** Output on its way: whoever passes on much can do so without copies and without garbage. */
export interface StreamedChunk extends OutputChunk {
  /** The data behind one byte of the caller's, without a copy. */
  marked(mark: number): Buffer;
  /** Says that the data is no longer looked at, so that its memory may be used again. */
  release(): void;
}

/** A foreground process: it is killed with its group when the handle is closed or the connection is lost. */
export interface GuestProcess {
  readonly pid: number;
  /** Both streams in the order of arrival, with back-pressure to the process. May be iterated once. */
  readonly output: AsyncIterable<StreamedChunk>;
  /** Settles after all output was delivered or dropped. */
  readonly exit: Promise<ExitStatus>;
  writeStdin(data: Uint8Array): Promise<void>;
  endStdin(): Promise<void>;
  signal(signal: number): Promise<void>;
  close(): void;
}

export interface JobInfo {
  readonly id: number;
  readonly pid: number;
  readonly argv: readonly string[];
  readonly startedAtMs: number;
  /** Its output counts as activity: the sandbox does not fall asleep while it writes. */
  readonly keepAwake: boolean;
  readonly running: boolean;
  readonly exit: ExitStatus | null;
  /** Total bytes ever written to the log, and the oldest offset still kept. */
  readonly logBytes: number;
  readonly logStart: number;
}

export type JobRequest = ProcessRequest & {
  readonly keepAwake?: boolean;
  /** It has a standard input that `writeJob` fills; otherwise that is empty. */
  readonly takesInput?: boolean;
};

export interface JobSweep {
  readonly marker: string;
  readonly spared?: readonly number[];
  readonly signal?: number;
}

export interface JobLog {
  readonly chunks: readonly OutputChunk[];
  /** Pass it to the next read. */
  readonly cursor: number;
  /** Bytes between the cursor given and what is still kept. */
  readonly droppedBytes: number;
  readonly running: boolean;
  readonly exit: ExitStatus | null;
}

export interface PtyInfo {
  readonly id: number;
  readonly pid: number;
  readonly argv: readonly string[];
  readonly cols: number;
  readonly rows: number;
  readonly running: boolean;
  readonly exit: ExitStatus | null;
}

/** One attachment to a terminal. Closing it leaves the terminal running; attach again to go on. */
export interface PtyAttachment {
  /** First what the terminal last showed (up to 64 KiB), then what it shows from now on. Ends when the terminal ends. */
  readonly output: AsyncIterable<Buffer>;
  readonly exit: Promise<ExitStatus>;
  write(data: Uint8Array): Promise<void>;
  detach(): void;
}

export type FileKind = 'file' | 'directory' | 'symlink' | 'fifo' | 'socket' | 'device';

export interface FileStat {
  readonly path: string;
  readonly kind: FileKind;
  readonly sizeBytes: number;
  /** Permission bits only, for example 0o644. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeMs: number;
  readonly target: string | null;
}

export interface WriteOptions {
  readonly mode?: number;
  /** Names or ids, `user` or `user:group`; default: what the file had, else root. */
  readonly owner?: string;
  readonly createParents?: boolean;
}

export interface UnpackOptions {
  /** Directories that are there already get the owner, mode and time that the tar has for them. */
  readonly replaceAttributes?: boolean;
}

/** All that belongs to a file besides its content. */
export interface FileAttributes {
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeNs: bigint;
  /** Of user.*, capabilities and access control lists: these and no others. */
  readonly extended: readonly { readonly name: string; readonly value: Uint8Array }[];
}

export interface WatchEvent {
  readonly kind: 'created' | 'modified' | 'removed' | 'moved' | 'overflow';
  readonly path: string;
  /** Where it went, for `moved`. */
  readonly to: string | null;
}

export interface GuestWatch extends AsyncIterable<WatchEvent> {
  /** From then on nothing is missed. */
  readonly ready: Promise<void>;
}

export interface ByteStream {
  readonly input: AsyncIterable<Buffer>;
  write(data: Uint8Array): Promise<void>;
  end(): Promise<void>;
  close(): void;
}

export interface ForkNotice {
  readonly sandboxId: string;
  readonly name: string;
  readonly hostname: string;
  /** Fresh bytes that the agent stirs into the kernel's pool where the kernel lets it. */
  readonly entropy: Uint8Array;
}

export interface FilePiece {
  readonly offsetBytes: number;
  readonly bytes: Uint8Array;
}

export interface Guest {
  /** The same guest for who may give up: calls under way end at once then, with the reason of the signal. */
  until(signal: AbortSignal): Guest;

  /** With `emptyInput` its stdin is at its end from the start. */
  exec(request: ProcessRequest & { readonly emptyInput?: boolean }): Promise<GuestProcess>;

  startJob(request: JobRequest): Promise<JobInfo>;
  listJobs(): Promise<JobInfo[]>;
  /** Waits up to waitMs for output past the cursor or for the end of the job. */
  readJob(id: number, options: { cursor?: number; maxBytes?: number; waitMs?: number }): Promise<JobLog>;
  signalJob(id: number, signal: number): Promise<void>;
  /**
   * Bytes for the standard input of a job that takes some, by their place in it; returns where its input ends now, which may be before the
   * end of these bytes. Bytes that it had already are left out: a call may be repeated.
   */
  writeJob(id: number, start: number, bytes: Uint8Array): Promise<number>;
  /**
   * What a job has running beside its own process, found by descent and by a `NAME=value` of its environment. Signals all of these but the
   * spared ones, where a signal is given, and says which they were.
   */
  sweepJob(id: number, options: JobSweep): Promise<number[]>;

  openPty(request: ProcessRequest & { cols: number; rows: number }): Promise<PtyInfo>;
  listPtys(): Promise<PtyInfo[]>;
  attachPty(id: number): Promise<PtyAttachment>;
  resizePty(id: number, cols: number, rows: number): Promise<void>;
  signalPty(id: number, signal: number): Promise<void>;

  stat(path: string): Promise<FileStat>;
  list(
    path: string,
    options: { depth?: number; limit?: number },
  ): Promise<{ entries: FileStat[]; truncated: boolean }>;
  read(path: string, range?: { offset?: number; length?: number }): AsyncIterable<Buffer>;
  /** Written beside the target and renamed over it: readers see the old or the new file. Returns the bytes written. */
  write(path: string, data: AsyncIterable<Uint8Array>, options?: WriteOptions): Promise<number>;
  /** The same for a file of that size of which only the pieces are data, in order; the rest are holes. */
  writePieces(
    path: string,
    sizeBytes: number,
    pieces: AsyncIterable<FilePiece>,
    options?: WriteOptions,
  ): Promise<number>;
  move(from: string, to: string): Promise<void>;
  remove(path: string, options?: { recursive?: boolean }): Promise<void>;
  /** One more name for a file; takes the place of what has that name, in one step. */
  link(existing: string, path: string): Promise<void>;
  /** Of whatever is there, a link itself included. */
  setAttributes(path: string, attributes: FileAttributes): Promise<void>;
  mkdir(path: string, options?: { parents?: boolean; mode?: number }): Promise<void>;
  watch(path: string, options: { recursive: boolean; signal: AbortSignal }): GuestWatch;
  /** A tar (ustar with pax where needed) of what is below the path. */
  pack(path: string): AsyncIterable<Buffer>;
  /** Unpacks such a tar below an existing or new directory; refuses entries that leave it. */
  unpack(
    path: string,
    tar: AsyncIterable<Uint8Array>,
    options?: UnpackOptions,
  ): Promise<{ files: number; bytes: number }>;

  /** Connects to a TCP port on the sandbox's own loopback. */
  dial(port: number): Promise<ByteStream>;
  /**
   * Opens a socket through which programs inside reach whoever accepts, and puts a program at the other path that speaks over it. May be
   * repeated.
   */
  listen(socketPath: string, helperPath: string): Promise<void>;
  /** The next program that connects to that socket; waits for one. */
  accept(): Promise<ByteStream>;

  /** The daemon waits for this and the next one before it tells of a sandbox: an agent that does not answer in time fails. */
  setHostname(hostname: string, options?: { readonly timeoutMs?: number }): Promise<void>;
  /** After a fork or a restore of memory: sets the hostname, stirs entropy, writes the event file and signals. */
  announceFork(notice: ForkNotice, options?: { readonly timeoutMs?: number }): Promise<void>;
  /** Flushes the sandbox's filesystems. */
  sync(): Promise<void>;
  /** Sends the signal (TERM unless given) to every process, KILL after the grace; then PID 1 ends. */
  shutdown(graceMs: number, signal?: number): Promise<void>;

  /** The sandbox is made to stand still: its silence is no fault until the function that this returns is called. */
  hold(): () => void;

  /** Settles when the connection is gone. */
  readonly closed: Promise<void>;
  close(): void;
}
