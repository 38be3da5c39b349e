/** Ends the process at once when JVS_KILL_AT names this point: how the crash tests stop a command anywhere. */
export const killPoint = (name: string): void => {
  if (process.env.JVS_KILL_AT === name) process.kill(process.pid, 'SIGKILL');
};
