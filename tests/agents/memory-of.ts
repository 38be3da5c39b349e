import { closeSync, openSync, readdirSync, readFileSync, readlinkSync, readSync } from 'node:fs';
import { homeKey } from '@coppice/testkit';

const chunkBytes = 8 << 20;

const textOf = (path: string): string => {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '';
  }
};

/** Whether a file, from an offset to another, holds one of the texts; what cannot be read holds none. */
function find(path: string, from: number, to: number, texts: readonly string[], found: Set<string>): void {
  const overlap = Math.max(...texts.map((text) => text.length));
  const chunk = Buffer.alloc(chunkBytes + overlap);
  let fd: number;
  try {
    fd = openSync(path, 'r');
  } catch {
    // The process has ended meanwhile.
    return;
  }
  try {
    for (let at = from; at < to; at += chunkBytes) {
      let length: number;
      try {
        length = readSync(fd, chunk, 0, Math.min(chunk.length, to - at), at);
      } catch {
        continue;
      }
      if (length === 0) return;
      for (const text of texts) if (chunk.subarray(0, length).includes(text)) found.add(text);
    }
  } finally {
    closeSync(fd);
  }
}

const pids = (): string[] => readdirSync('/proc').filter((name) => /^\d+$/.test(name));

/** Which of the texts are in the memory of any process of a run, seen from the machine. */
export function inMemoryOf(
  run: { readonly id: string; readonly sandbox_id: string | null },
  texts: readonly string[],
): { readonly found: ReadonlySet<string>; readonly processes: number } {
  const found = new Set<string>();
  let processes = 0;
  for (const pid of pids()) {
    const isOfRun = textOf(`/proc/${pid}/environ`).includes(`COPPICE_RUN_ID=${run.id}`);
    // All of a sandbox of gVisor is in the memory of its kernel, which is a process.
    const isKernel =
      textOf(`/proc/${pid}/cmdline`).includes('runsc-sandbox') &&
      textOf(`/proc/${pid}/cmdline`).includes(run.sandbox_id ?? '-');
    if (!isOfRun && !isKernel) continue;
    processes += 1;
    searchProcess(pid, texts, found);
  }
  return { found, processes };
}

/** Adds those of the texts that are in the memory of a process. */
function searchProcess(pid: string, texts: readonly string[], found: Set<string>): void {
  for (const line of textOf(`/proc/${pid}/maps`).split('\n')) {
    const range = /^([0-9a-f]+)-([0-9a-f]+) r/.exec(line);
    // Memory of gVisor is read through its file below: to read its mapping would fill its holes, at the cost of the sandbox.
    if (range !== null && !line.includes('[vvar') && !line.includes('runsc-memory'))
      find(`/proc/${pid}/mem`, Number.parseInt(range[1]!, 16), Number.parseInt(range[2]!, 16), texts, found);
  }
  for (const fd of namesIn(`/proc/${pid}/fd`)) {
    const path = `/proc/${pid}/fd/${fd}`;
    if (linkOf(path).includes('runsc-memory')) find(path, 0, 64 * 2 ** 30, texts, found);
  }
}

export interface Searched {
  readonly command: string;
  readonly found: readonly string[];
}

/** Every process of a home: the daemon, its helpers, the gateway, and all in its sandboxes; with those of the texts that it holds. */
export function searchHome(home: string, texts: readonly string[]): ReadonlyMap<number, Searched> {
  const key = homeKey(home);
  const searched = new Map<number, Searched>();
  for (const pid of pids()) {
    const command = textOf(`/proc/${pid}/cmdline`).replaceAll('\0', ' ');
    const signs = [command, textOf(`/proc/${pid}/cgroup`), `${linkOf(`/proc/${pid}/cwd`)}/`];
    if (!signs.some((sign) => sign.includes(`${home}/`) || sign.includes(`${home} `) || sign.includes(key)))
      continue;
    const found = new Set(
      texts.filter((text) => `${command}${textOf(`/proc/${pid}/environ`)}`.includes(text)),
    );
    searchProcess(pid, texts, found);
    searched.set(Number(pid), { command, found: [...found] });
  }
  return searched;
}

const namesIn = (directory: string): string[] => {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
};

const linkOf = (path: string): string => {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
};
