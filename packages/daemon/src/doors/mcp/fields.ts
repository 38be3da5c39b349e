import { environmentSchema, guestPathSchema, sandboxRefSchema, workDirectory } from '@coppice/protocol';
import { z } from 'zod';

export { workDirectory };

/** Parameters that many tools share, each with the words that an agent reads. */
export const workspaceId = sandboxRefSchema.describe('Id or name of the workspace.');
export const filePath = guestPathSchema.describe(`Path inside; relative to ${workDirectory}.`);
export const workdir = guestPathSchema.optional().describe(`Directory to run in; default ${workDirectory}.`);
export const environment = environmentSchema
  .optional()
  .describe('Environment variables for this command only.');
export const commandLine = z
  .string()
  .min(1)
  .max(1_048_576)
  .describe('A shell command line (bash where there is one).');
export const maxOutputBytes = z
  .int()
  .min(1)
  .max(8_388_608)
  .optional()
  .describe(
    'Bytes of stdout and of stderr to show. Default: about 8000 tokens; the note at the cut says where the rest is.',
  );
export const timeoutSecs = (defaultSecs: number) =>
  z.number().min(0.1).max(86_400).default(defaultSecs).describe('Seconds until the command is killed.');
export const repositoryPath = guestPathSchema.default(workDirectory).describe('Directory of the repository.');
