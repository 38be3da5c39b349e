import type { Sandbox } from '@coppice/protocol';
import { bytes } from '../app/text.ts';
import { Meter, Sparkline } from '../app/ui.tsx';
import type { Usage as Measured } from '../overview/usage.ts';

/** What it may use, and what it uses now. */
export const Usage = ({ sandbox, usage }: { sandbox: Sandbox; usage: Measured | undefined }) => {
  const cpu = usage?.cpu.at(-1);
  const rows = [
    {
      title: 'Memory',
      now: usage?.memoryBytes,
      most: sandbox.memory_mb * 1024 * 1024,
      say: bytes,
    },
    { title: 'Disk', now: usage?.diskBytes, most: sandbox.disk_mb * 1024 * 1024, say: bytes },
    { title: 'Processes', now: usage?.pids, most: sandbox.pids, say: String },
  ];
  return (
    <div class="usage">
      <div>
        <span>Processor</span>
        <span class="number">
          {cpu === undefined ? '–' : `${(cpu * 100).toFixed(0)} %`}{' '}
          <span class="muted">of {(sandbox.cpus * 100).toFixed(0)} %</span>
        </span>
        <Sparkline values={usage?.cpu ?? []} most={sandbox.cpus} label="Processor over the last minute" />
      </div>
      {rows.map(({ title, now, most, say }) => (
        <div key={title}>
          <span>{title}</span>
          <span class="number">
            {now === undefined ? '–' : say(now)} <span class="muted">of {say(most)}</span>
          </span>
          <Meter value={now ?? 0} most={most} label={title} />
        </div>
      ))}
    </div>
  );
};
