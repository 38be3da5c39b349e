import type { Job, Sandbox } from '@coppice/protocol';
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { query, setQuery } from '../app/router.ts';
import { client, noticeSignOut } from '../app/session.ts';
import { bytes, plain } from '../app/text.ts';
import { Age, Failure } from '../app/ui.tsx';

interface Process {
  readonly pid: number;
  readonly name: string;
  readonly state: string;
  readonly parent: number;
  readonly cpuS: number;
  readonly memoryBytes: number;
}

const everyMs = 3_000;
const logKept = 400_000;
/** Nothing but the shell itself is needed for it. */
const listProcesses = 'for d in /proc/[0-9]*; do IFS= read -r l < "$d/stat" && echo "$l"; done 2>/dev/null';

/** `pid (name) state parent …`; a name may hold anything, also brackets. */
const processOf = (line: string): Process | undefined => {
  const parts = /^(\d+) \((.*)\) (\S) (\d+) (.*)$/s.exec(line);
  if (parts === null) return undefined;
  const rest = parts[5]!.split(' ');
  return {
    pid: Number(parts[1]),
    name: parts[2]!,
    state: parts[3]!,
    parent: Number(parts[4]),
    cpuS: (Number(rest[9]) + Number(rest[10])) / 100,
    memoryBytes: Number(rest[19]) * 4096,
  };
};

const Log = ({ sandbox, job }: { sandbox: Sandbox; job: number }) => {
  const text = useSignal('');
  const failure = useSignal<unknown>(undefined);
  useEffect(() => {
    const abort = new AbortController();
    const decoder = new TextDecoder();
    const follow = async (): Promise<void> => {
      for await (const { data } of client()
        .sandboxes.at(sandbox.id)
        .jobs.follow(job, { signal: abort.signal }))
        text.value = (text.value + decoder.decode(data as Uint8Array, { stream: true })).slice(-logKept);
    };
    text.value = '';
    follow().catch((error: unknown) => {
      if (abort.signal.aborted) return;
      noticeSignOut(error);
      failure.value = error;
    });
    return () => abort.abort();
  }, [sandbox.id, job]);
  return (
    <>
      <Failure error={failure.value} />
      <pre class="log" tabIndex={0} aria-label={`Log of job ${job}`}>
        {plain(text.value)}
      </pre>
    </>
  );
};

export const Tab = ({ sandbox }: { sandbox: Sandbox }) => {
  const jobs = useSignal<readonly Job[]>([]);
  const processes = useSignal<readonly Process[]>([]);
  const failure = useSignal<unknown>(undefined);
  const command = useSignal('');
  const handle = client().sandboxes.at(sandbox.id);
  const isRunning = sandbox.state === 'running';
  const look = async (): Promise<void> => {
    // A call would wake one that sleeps.
    if (document.hidden || !isRunning) return;
    try {
      const [list, { stdout }] = await Promise.all([
        handle.jobs.list(),
        handle.exec(['sh', '-c', listProcesses]),
      ]);
      jobs.value = list.toReversed();
      processes.value = stdout
        .split('\n')
        .map(processOf)
        .filter((found): found is Process => found !== undefined && found.name !== 'coppice-agent');
      failure.value = undefined;
    } catch (error) {
      noticeSignOut(error);
      failure.value = error;
    }
  };
  useEffect(() => {
    void look();
    const timer = setInterval(() => void look(), everyMs);
    return () => clearInterval(timer);
  }, [sandbox.id, isRunning]);
  const act = (work: Promise<unknown>): void => {
    work.then(look, (error: unknown) => {
      noticeSignOut(error);
      failure.value = error;
    });
  };
  const shownJob = Number(query.value.get('job') ?? 0);
  return (
    <>
      <Failure error={failure.value} />
      <h2>Jobs</h2>
      <form
        class="inline"
        onSubmit={(event) => {
          event.preventDefault();
          if (command.value !== '') act(handle.jobs.start(command.value));
          command.value = '';
        }}
      >
        <input
          type="text"
          class="mono"
          aria-label="Command to run in the background"
          placeholder="Run in the background"
          value={command.value}
          onInput={(event) => {
            command.value = event.currentTarget.value;
          }}
        />
        <button type="submit">Run</button>
      </form>
      {jobs.value.length > 0 && (
        <table>
          <thead>
            <tr>
              <th class="number">Job</th>
              <th>Command</th>
              <th>State</th>
              <th class="number">Log</th>
              <th class="number">Age</th>
              <td />
            </tr>
          </thead>
          <tbody>
            {jobs.value.map((job) => (
              <tr key={job.id} class={job.id === shownJob ? 'selected' : ''}>
                <td class="number">{job.id}</td>
                <td class="mono cut">{plain(job.command.at(-1) ?? '')}</td>
                <td>
                  {job.running
                    ? 'running'
                    : job.exit?.signal
                      ? `signal ${job.exit.signal}`
                      : `exit ${job.exit?.exit_code}`}
                </td>
                <td class="number">{bytes(job.log_bytes)}</td>
                <td class="number">
                  <Age at={job.started_at} />
                </td>
                <td class="do">
                  <button
                    type="button"
                    class="quiet small"
                    onClick={() => setQuery({ job: job.id === shownJob ? '' : String(job.id) })}
                  >
                    {job.id === shownJob ? 'Hide log' : 'Log'}
                  </button>
                  {job.running && (
                    <button type="button" class="quiet small" onClick={() => act(handle.jobs.kill(job.id))}>
                      End
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {shownJob > 0 && <Log sandbox={sandbox} job={shownJob} />}
      <h2>Processes</h2>
      {isRunning ? (
        <table>
          <thead>
            <tr>
              <th class="number">Id</th>
              <th>Name</th>
              <th>State</th>
              <th class="number">Parent</th>
              <th class="number">Processor</th>
              <th class="number">Memory</th>
              <td />
            </tr>
          </thead>
          <tbody>
            {processes.value.map((process) => (
              <tr key={process.pid}>
                <td class="number">{process.pid}</td>
                <td class="mono">{plain(process.name)}</td>
                <td>{process.state}</td>
                <td class="number">{process.parent}</td>
                <td class="number">{process.cpuS.toFixed(1)} s</td>
                <td class="number">{bytes(process.memoryBytes)}</td>
                <td class="do">
                  {process.pid !== 1 && (
                    <button
                      type="button"
                      class="quiet small"
                      onClick={() => act(handle.exec(['sh', '-c', 'kill "$0"', String(process.pid)]))}
                    >
                      End
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      ) : (
        <p class="muted">It does not run, so it has no processes.</p>
      )}
    </>
  );
};
