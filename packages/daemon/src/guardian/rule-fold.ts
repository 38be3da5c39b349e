import { posix } from 'node:path';
import {
  type EventBody,
  type GuardianFinding,
  type GuardianRule,
  PathGlob,
  type RunEvent,
} from '@coppice/protocol';

type Condition<K> = Extract<GuardianRule['when'], { kind: K }>;

const minuteMs = 60_000;
const shown = 200;

/** Inputs are JSON as a rule: their line ends and tabs are written out. */
const plain = (text: string): string => text.replace(/\\[ntr]/g, ' ').replace(/\s+/g, ' ');
const cut = (text: string): string =>
  text.length > shown ? `${text.slice(0, shown)}…` : text.replace(/[\x00-\x1f\x7f]/g, ' ');

/** The path as the globs mean it: without `.` and `..`, and relative to the working directory where it lies in it. */
const pathOf = (given: string): string => {
  const path = posix.normalize(
    posix.join('/workspace', given.startsWith('/') ? posix.relative('/workspace', given) : given),
  );
  return path.startsWith('/workspace/') ? path.slice('/workspace/'.length) : path;
};

/**
 * Folds the events of one run, and says where a rule meets them. Knows nothing but events, so a recorded run gives what a running one
 * gave. `whole` gives the whole of a text that is long: what is forbidden does not hide behind its first bytes.
 */
export class RuleFold {
  readonly #rules: readonly GuardianRule[];
  readonly #whole: (body: EventBody) => string;
  readonly #results: boolean[] = [];
  readonly #globs = new Map<string, PathGlob>();
  readonly #once = new Set<string>();
  #lastCall = '';
  #sameCalls = 0;
  #micros = 0;
  #startedMs: number | undefined;
  #seq = 0;
  #tools = 0;

  constructor(rules: readonly GuardianRule[], whole: (body: EventBody) => string = ({ text }) => text) {
    this.#rules = rules;
    this.#whole = whole;
  }

  /** How many tool calls there were. */
  get tools(): number {
    return this.#tools;
  }

  feed(event: RunEvent): GuardianFinding[] {
    this.#seq = event.seq;
    this.#take(event);
    return this.#rules.flatMap((rule) => {
      const detail = this.#met(rule, event);
      return detail === undefined ? [] : [this.#finding(rule, detail)];
    });
  }

  /** Time passes also where nothing happens. */
  tick(nowMs: number): GuardianFinding[] {
    return this.#rules.flatMap((rule) => {
      const detail = rule.when.kind === 'time' ? this.#late(rule, rule.when, nowMs) : undefined;
      return detail === undefined ? [] : [this.#finding(rule, detail)];
    });
  }

  #finding(rule: GuardianRule, detail: string): GuardianFinding {
    return { seq: this.#seq, rule: rule.name, detail: cut(detail), would: rule.action };
  }

  #take(event: RunEvent): void {
    if (event.type === 'run.state' && event.data.to === 'running') this.#startedMs ??= Date.parse(event.at);
    if (event.type === 'usage.call') this.#micros += event.data.cost_micros ?? 0;
    if (event.type === 'agent.tool_result') this.#results.push(event.data.ok);
    if (event.type === 'run.rewound') {
      this.#lastCall = '';
      this.#sameCalls = 0;
      this.#results.length = 0;
    }
    if (event.type !== 'agent.tool_use') return;
    this.#tools += 1;
    const call = `${event.data.tool}\0${this.#whole(event.data.input)}`;
    this.#sameCalls = call === this.#lastCall ? this.#sameCalls + 1 : 1;
    this.#lastCall = call;
  }

  #met(rule: GuardianRule, event: RunEvent): string | undefined {
    const { when } = rule;
    switch (when.kind) {
      case 'loop':
        return event.type === 'agent.tool_use' && this.#sameCalls > 0 && this.#sameCalls % when.times === 0
          ? `${event.data.tool} was called ${this.#sameCalls} times with the same input`
          : undefined;
      case 'forbidden_path':
        return event.type === 'agent.file_edited' && this.#matches(event.data.path, when.paths)
          ? `${event.data.path} was ${event.data.change}`
          : undefined;
      case 'drift':
        return event.type === 'agent.file_edited' && !this.#matches(event.data.path, when.paths)
          ? `${event.data.path} has nothing to do with the task`
          : undefined;
      case 'forbidden_command':
        return event.type === 'agent.tool_use' ? this.#forbidden(when, event.data) : undefined;
      case 'error_rate':
        return event.type === 'agent.tool_result' ? this.#failing(when) : undefined;
      case 'cost':
        return this.#micros >= when.usd * 1e6 && this.#first(rule)
          ? `it has cost ${(this.#micros / 1e6).toFixed(4)} dollars`
          : undefined;
      case 'time':
        return this.#late(rule, when, Date.parse(event.at));
    }
  }

  #matches(given: string, patterns: readonly string[]): boolean {
    const path = pathOf(given);
    return patterns.some((pattern) => {
      const glob = this.#globs.get(pattern) ?? new PathGlob(pattern, { deep: true, braces: true });
      this.#globs.set(pattern, glob);
      return glob.matches(path);
    });
  }

  #forbidden(
    { commands }: Condition<'forbidden_command'>,
    data: { title: string; input: EventBody },
  ): string | undefined {
    const text = plain(`${data.title}\n${this.#whole(data.input)}`);
    const found = commands.find((command) => text.includes(plain(command)));
    return found === undefined ? undefined : `it uses ${found}`;
  }

  #failing({ errors, of }: Condition<'error_rate'>): string | undefined {
    const last = this.#results.slice(-of);
    const failed = last.filter((ok) => !ok).length;
    if (failed < errors) return undefined;
    this.#results.length = 0;
    return `${failed} of the last ${last.length} tool calls failed`;
  }

  #late(rule: GuardianRule, { minutes }: Condition<'time'>, nowMs: number): string | undefined {
    if (this.#startedMs === undefined || nowMs - this.#startedMs < minutes * minuteMs || !this.#first(rule))
      return undefined;
    return `it has worked for ${Math.floor((nowMs - this.#startedMs) / minuteMs)} minutes`;
  }

  #first({ name }: GuardianRule): boolean {
    if (this.#once.has(name)) return false;
    this.#once.add(name);
    return true;
  }
}
