import { fstatSync, writeSync } from 'node:fs';

/** The major number of /dev/null and its like. */
const memoryDevices = 1;

/** Node's own streams take longer to load than a short command takes to run; a plain write does not. */
const output = (file: number): { write(text: string): void; isTTY: boolean } => ({
  write(text) {
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length; ) {
      try {
        at += writeSync(file, bytes, at);
      } catch (error) {
        const { code } = error as NodeJS.ErrnoException;
        // A reader that went away (`jvs history | head -1`) is no failure.
        if (code === 'EPIPE') process.exit(0);
        if (code !== 'EAGAIN') throw error;
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
      }
    }
  },
  get isTTY() {
    // Neither a pipe or a file nor /dev/null needs a library of terminals to be known as none.
    const found = fstatSync(file);
    if (!found.isCharacterDevice() || found.rdev >> 8 === memoryDevices) return false;
    return process.getBuiltinModule('node:tty').isatty(file);
  },
});

// For this command alone, and not for what it starts.
const { COPPICE_TREE_HELPER: helper } = process.env;
delete process.env.COPPICE_TREE_HELPER;

const { runJvs } = await import('./run.ts');
let cwd: string | undefined;
try {
  cwd = process.cwd();
} catch {
  // It is gone; commands that need it say so.
}
process.exitCode = await runJvs(process.argv.slice(2), {
  cwd,
  env: process.env,
  helper,
  get stdin() {
    return process.stdin;
  },
  stdout: output(1),
  stderr: output(2),
});
