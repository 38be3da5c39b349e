import { sandboxStateSchema } from '@coppice/protocol';
import { Counter, Gauge, Histogram, Registry } from '@prometheus-io/client';
import type { State } from '../db/state.ts';
import type { Journal } from '../journal/journal.ts';
import type { WarmPool } from '../sandboxes/warm-pool.ts';

/** Numbers for Prometheus, counted from what is written down and from the events as they are committed. */
export class MetricsService {
  readonly #registry = new Registry();
  readonly #requests: Histogram<'method' | 'route' | 'status'>;

  constructor(state: State, journal: Journal, pool: WarmPool) {
    const registers = [this.#registry];
    new Gauge({
      name: 'coppice_sandboxes',
      help: 'Sandboxes by state.',
      labelNames: ['state'],
      registers,
      collect() {
        const counts = new Map<string, number>(sandboxStateSchema.options.map((name) => [name, 0]));
        for (const { state: name } of state.sandboxes.all()) counts.set(name, counts.get(name)! + 1);
        for (const [name, count] of counts) this.set({ state: name }, count);
      },
    });
    new Gauge({
      name: 'coppice_snapshots',
      help: 'Snapshots and checkpoints.',
      registers,
      collect() {
        this.set(state.snapshots.all().length);
      },
    });
    new Gauge({
      name: 'coppice_warm_sandboxes',
      help: 'Started sandboxes that wait in the pool.',
      registers,
      collect() {
        this.set(pool.readyCount);
      },
    });
    new Gauge({
      name: 'coppice_resident_memory_bytes',
      help: 'Memory of the daemon.',
      registers,
      collect() {
        this.set(process.memoryUsage.rss());
      },
    });
    const events = new Counter({
      name: 'coppice_events_total',
      help: 'Events by type since the daemon started.',
      labelNames: ['type'],
      registers,
    });
    const boots = new Histogram({
      name: 'coppice_boot_seconds',
      help: 'From the call that creates a sandbox until it runs.',
      labelNames: ['from_pool'],
      buckets: [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5],
      registers,
    });
    journal.onCommitted((committed) => {
      for (const { type, data } of committed) {
        events.inc({ type });
        if (type === 'sandbox.created')
          boots.observe({ from_pool: String(data.from_pool) }, Number(data.boot_ms) / 1000);
      }
    });
    this.#requests = new Histogram({
      name: 'coppice_request_seconds',
      help: 'Calls by method, route and status.',
      labelNames: ['method', 'route', 'status'],
      buckets: [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10],
      registers,
    });
  }

  /** For the doors. */
  observeRequest(
    call: { readonly method: string; readonly route: string },
    status: number,
    seconds: number,
  ): void {
    this.#requests.observe({ ...call, status: String(status) }, seconds);
  }

  text(): Promise<string> {
    return this.#registry.metrics();
  }
}
