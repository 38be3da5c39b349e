import type { DefineCommand } from '../verb.ts';

export const define: DefineCommand = (program, cli) => {
  program
    .command('workspace')
    .description('Version a plain directory, without a sandbox and without the daemon: the `jvs` commands')
    .argument('[words...]', 'a command of jvs with its options; see `coppice workspace help`')
    .helpOption(false)
    .allowUnknownOption()
    .passThroughOptions()
    .action(async (words: string[]) => {
      const { runJvs } = await import('@coppice/workspaces/cli');
      const argv = cli.out.isJson ? ['--json', ...words] : words;
      cli.exitCode = await runJvs(argv, {
        cwd: process.cwd(),
        env: cli.io.env,
        stdin: cli.io.stdin,
        stdout: cli.io.stdout,
        stderr: cli.io.stderr,
      });
    });
};
