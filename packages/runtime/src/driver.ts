import { CoppiceError } from '@coppice/protocol';
import type { Guest } from './guest/guest.ts';
import type { LinkListener } from './guest/link-keeper.ts';

/**
 * The port that every kind of isolated computer implements. What stands above a driver does not know
 * how a sandbox is isolated, nor that it runs on this machine: it sees a Machine and its Guest.
 * testkit/src/driver-conformance.ts holds the promises made here.
 */
export interface MachineLimits {
  readonly cpus: number;
  readonly memoryBytes: number;
  readonly pids: number;
}

/** An image as the drivers take it: directories that never change, shared by every sandbox that was made from it. */
export interface ImageRoot {
  /** What holds them all. */
  readonly directory: string;
  /** Their paths below it, topmost first. One that is above hides what those below have of the same name. */
  readonly layers: readonly [string, ...string[]];
}

/** A directory of the host that is mounted in a sandbox. */
export interface HostMount {
  readonly hostPath: string;
  readonly guestPath: string;
  readonly readOnly: boolean;
  /** What the directory must be, as the daemon noted at creation; another one, or a link on its path, is refused. */
  readonly identity?: string | null;
}

export interface MachineSpec {
  readonly id: string;
  readonly hostname: string;
  readonly image: ImageRoot;
  /** The sandbox's own disk: holds `upper` and `work`; the root is an overlay of the two over the image. */
  readonly diskDir: string;
  readonly limits: MachineLimits;
  /** Directories of the host. Root inside is their owner there; others inside are nobody of the host. */
  readonly mounts?: readonly HostMount[];
  /** For drivers whose network must stand before the start: the path of a prepared network namespace. */
  readonly netns?: string;
  /**
   * Settles when that namespace obeys its policy. A driver may prepare the machine meanwhile; nothing inside runs before,
   * and nothing is left of it where this fails.
   */
  readonly networkStands?: Promise<unknown>;
}

export interface MachineUsage {
  readonly memoryBytes: number;
  readonly cpuUsec: number;
  readonly pids: number;
  /** How often the kernel killed for memory. */
  readonly oomKills: number;
}

/** Who may want something given up besides its caller: the sandbox is to stop, it is to go, or this process ends. */
export type Ending = 'stop' | 'destroy' | 'close';

export interface GiveUp {
  /** Nobody wants it any more. It ends as soon as that does no harm to what runs in the sandbox. */
  readonly signal?: AbortSignal | undefined;
  /**
   * The same with its reason's `ending`: where the sandbox stops or goes it ends at once, whatever that does to it; where this process
   * ends, what another one can finish is left to that one (LeftBehind).
   */
  readonly ended?: AbortSignal | undefined;
}

export const endingOf = (ended: AbortSignal | undefined): Ending | undefined =>
  (ended?.reason as { readonly ending?: Ending } | undefined)?.ending;

/** How long the memory of a sandbox may take to be written, and to be brought back, where nobody says. */
export const defaultMemoryMs = 600_000;

/** It was neither done nor undone: whoever adopts the machine next settles it. */
export class LeftBehind extends CoppiceError {}

/** A file below /run of a sandbox, and the file of its root that shows the same from then on. */
export interface Cover {
  readonly file: string;
  readonly place: string;
}

/** How often the kernel refused something for a limit, since the machine started. */
export interface MachineRefusals {
  readonly oomKills: number;
  readonly pidsRefused: number;
}

export interface Machine {
  readonly id: string;
  /** On the host; its /proc/<pid>/ns/net is the sandbox's network namespace. */
  readonly pid: number;
  /** Asked for each time: a link that was lost is replaced by another. */
  readonly guest: Guest;
  /** Settles when the sandbox's PID 1 is gone, whoever ended it, or when it can never be reached again. */
  readonly exited: Promise<void>;
  /** Why it ended, where that is known. */
  readonly endedBecause?: string | undefined;
  /** Why its agent cannot be reached now; it is tried again. What was asked meanwhile has failed as unavailable. */
  readonly trouble: string | undefined;
  /** Told when that changes. One listener. */
  onTrouble(listener: LinkListener): void;
  /** Every process stands still until thaw. */
  freeze(): Promise<void>;
  thaw(): Promise<void>;
  setLimits(limits: MachineLimits): Promise<void>;
  usage(): Promise<MachineUsage>;
  /** Cheap enough to be asked for around every process. */
  refusals(): MachineRefusals;
  /** Renames the machine from outside; absent where the guest's own setHostname may do it. */
  setHostname?(hostname: string): Promise<void>;
  /**
   * Mounts files over files of the root, read-only, until the machine ends. Nothing of it is on the disk. Places that are no file are
   * left out; links lead to what they stand for.
   */
  cover(covers: readonly Cover[]): Promise<void>;
  /**
   * Sends every process the signal (TERM unless given), then kills after the grace. When it returns, no process, mount or cgroup of
   * the machine is left. Idempotent.
   */
  stop(graceMs: number, signal?: number): Promise<void>;
  /**
   * Writes the memory of every process to the directory (new, on the same filesystem as the disks). While `frozen` runs the
   * sandbox stands still, so a disk snapshot taken there is of the same instant. Whatever fails, the sandbox goes on; one that
   * cannot, since it hangs with its processes in the hands of who writes them, ends. Not to be asked for where the driver refuses to
   * keep memory.
   */
  checkpoint(directory: string, frozen: () => Promise<void>, giveUp?: GiveUp): Promise<{ pauseMs: number }>;
}

export interface DriverHealth {
  readonly usable: boolean;
  /** Version and platform, for people. */
  readonly detail: string;
  /** What a memory image that is made here depends on, as machine/memory-traits.ts writes it; null where none can be. */
  readonly memoryCompatibility: string | null;
  readonly findings: readonly { severity: 'error' | 'warning' | 'info'; message: string; fix: string }[];
}

export interface Driver {
  readonly name: string;
  /** Why it cannot start anything now, though it could before; it mends that itself. */
  readonly trouble?: string | undefined;
  /** Why it cannot keep memory on this machine; undefined where it can. */
  memoryRefusal(): Promise<string | undefined>;
  /** Whether memory that was kept on another machine may be brought back: what reads it must not have to trust it. */
  readonly takesForeignMemory: boolean;
  /** True when the network namespace must be prepared before the start. */
  readonly needsNetns: boolean;
  probe(): Promise<DriverHealth>;
  /** Once the signal is given, or it takes too long, it fails, and nothing of it is left. */
  start(spec: MachineSpec, signal?: AbortSignal): Promise<Machine>;
  /**
   * Finds a sandbox that an earlier daemon left running; undefined when it no longer runs or never did, and then nothing is left of it.
   * What writes its memory for that daemon is waited for, unless this is ended (see GiveUp).
   */
  adopt(spec: MachineSpec, ended?: AbortSignal): Promise<Machine | undefined>;
  /** Starts a machine from what checkpoint wrote; its disk is a copy of the one snapshotted with it. The signal as for a start. */
  restore(spec: MachineSpec, checkpointDir: string, signal?: AbortSignal): Promise<Machine>;
  /** Ends and cleans whatever runs under that id, also where it cannot be reached; nothing there is fine. */
  discard(id: string): Promise<void>;
  /** Ends and cleans every sandbox of this home that is not to be kept; returns the ids it removed. */
  sweep(keep: ReadonlySet<string>): Promise<string[]>;
  /**
   * Removes what is kept for memory that no longer exists: of machines that run and of these checkpoints all is there still. For
   * a moment at which nobody starts, ends or checkpoints anything.
   */
  forgetPrograms(checkpointDirs: readonly string[]): string[];
  close(): Promise<void>;
}
