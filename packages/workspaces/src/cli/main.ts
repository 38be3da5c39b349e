import { treeFailure } from '../index.ts';
import { exactArguments } from './exact-arguments.ts';
import { explain, runJvs } from './run.ts';

for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    // A reader that went away (`jvs history | head -1`) is no failure.
    if (error.code === 'EPIPE') process.exit(0);
    throw error;
  });
}

let cwd: string | undefined;
try {
  cwd = process.cwd();
} catch {
  // It is gone; commands that need it say so.
}
const io = { cwd, env: process.env, stdin: process.stdin, stdout: process.stdout, stderr: process.stderr };
const argv = exactArguments(process.argv.slice(2));

// What coppice-tree did by itself, and failed at: it is for this program to explain (native/tree/direct.h).
const { JVS_FAILURE: failure } = process.env;
if (failure === undefined) process.exitCode = await runJvs(argv, io);
else process.exitCode = explain(treeFailure(JSON.parse(failure).error), argv, io);
