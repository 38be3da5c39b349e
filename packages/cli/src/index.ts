export { Cli } from './cli.ts';
export { buildProgram } from './program.ts';
