import type { Socket } from 'node:net';
import type { AskAnswer, GatewayEventOf, Question } from '@coppice/protocol';
import type { GatewayState, Place } from '../state.ts';
import type { Errand } from './errand.ts';
import { type EgressPolicy, judge } from './policies.ts';
import type { ConnectionRecords } from './records.ts';

export interface QuestionsParts {
  readonly state: GatewayState;
  readonly records: ConnectionRecords;
  readonly now: () => number;
  readonly emit: (event: GatewayEventOf<'connection.asked' | 'connection.answered'>) => void;
}

type End = GatewayEventOf<'connection.answered'>['answer'];

interface OpenQuestion extends Place {
  readonly askedMs: number;
  readonly untilMs: number;
  readonly timer: NodeJS.Timeout;
  /** What to do with each connection that waits. */
  readonly waiting: Map<Socket, (goesOn: boolean, reason: string) => void>;
}

const mostQuestions = 16;
const mostWaiting = 32;
/** A name that somebody refused is not asked about again for this long: nobody is to be worn down by being asked. */
const refusedMs = 600_000;
const mostRefused = 256;

/**
 * Connections that wait until somebody says whether they may go on. One question stands for all connections of a sandbox to one
 * name and port. It stays open when its connections have gone, as programs give up sooner than people answer.
 */
export class Questions {
  readonly #parts: QuestionsParts;
  readonly #open = new Map<string, Map<string, OpenQuestion>>();
  readonly #refused = new Map<string, Map<string, number>>();
  readonly #approved = new WeakSet<Socket>();

  constructor(parts: QuestionsParts) {
    this.#parts = parts;
    for (const place of parts.state.takeQuestions())
      parts.emit({ type: 'connection.answered', ...place, answer: 'lost', connections: 0 });
  }

  /** Undefined where the connection may go on, else why not. */
  async ask(socket: Socket, errand: Errand): Promise<string | undefined> {
    const question = this.#question(errand);
    if (typeof question === 'string') return question;
    if (question.waiting.size >= mostWaiting)
      return `${mostWaiting} connections to ${question.name} wait for an answer already`;
    return new Promise((resolve) => {
      question.waiting.set(socket, (goesOn, reason) => {
        if (goesOn) this.#approved.add(socket);
        resolve(goesOn ? undefined : reason);
      });
      socket.once('close', () => {
        if (question.waiting.delete(socket)) resolve('the connection ended before somebody answered');
      });
    });
  }

  /** Whether it waits here, or went on as somebody said so. */
  concerns(socket: Socket, { policy, name, port }: Errand): boolean {
    const waits = this.#open.get(policy.sandbox)?.get(keyOf(name, port))?.waiting.has(socket) === true;
    return waits || this.#approved.has(socket);
  }

  list(sandbox: string): Question[] {
    return [...(this.#open.get(sandbox)?.values() ?? [])].map(
      ({ name, port, askedMs, untilMs, waiting }) => ({
        name,
        port,
        asked_ms: askedMs,
        until_ms: untilMs,
        connections: waiting.size,
      }),
    );
  }

  /** False where nobody asks that. */
  answer({ sandbox, name, port }: Place, answer: Extract<AskAnswer, 'once' | 'refuse'>): boolean {
    const question = this.#open.get(sandbox)?.get(keyOf(name, port));
    if (question === undefined) return false;
    if (answer === 'refuse') this.#rememberRefusal(question);
    this.#settle(question, answer, answer === 'once', `somebody refused ${name}`);
    return true;
  }

  /** Settles what a policy that has changed answers. */
  review(sandbox: string, policy: EgressPolicy | undefined): void {
    this.#refused.delete(sandbox);
    for (const question of [...(this.#open.get(sandbox)?.values() ?? [])]) {
      const { name, port } = question;
      const judgement = policy === undefined ? undefined : judge(policy, name, port);
      if (judgement?.allowed === true) this.#settle(question, 'allow', true, '');
      else if (judgement?.asks !== true) {
        const isDenied = judgement?.reason.endsWith(' is denied') === true;
        this.#settle(
          question,
          isDenied ? 'deny' : 'withdrawn',
          false,
          judgement?.reason ?? 'the sandbox has ended',
        );
      }
    }
  }

  close(): void {
    for (const questions of this.#open.values())
      for (const { timer } of questions.values()) clearTimeout(timer);
  }

  #question({ policy, name, port }: Errand): OpenQuestion | string {
    const { sandbox, ask } = policy;
    const { state, records, now, emit } = this.#parts;
    const key = keyOf(name, port);
    const open = this.#open.get(sandbox) ?? new Map<string, OpenQuestion>();
    const known = open.get(key);
    if (known !== undefined) return known;
    if ((this.#refused.get(sandbox)?.get(key) ?? 0) > now()) return `somebody refused ${name} a while ago`;
    if (open.size >= mostQuestions)
      return `${mostQuestions} questions of this sandbox wait for an answer already`;
    const withinMs = ask?.within_ms ?? 0;
    const question: OpenQuestion = {
      sandbox,
      name,
      port,
      askedMs: now(),
      untilMs: now() + withinMs,
      waiting: new Map(),
      timer: setTimeout(() => {
        this.#settle(
          question,
          'timeout',
          false,
          `nobody allowed ${name} within ${Math.round(withinMs / 1000)} seconds`,
        );
      }, withinMs),
    };
    // Remembered before it is told: one that is killed says that the question is lost.
    state.addQuestion(question);
    this.#open.set(sandbox, open.set(key, question));
    records.asked(question, question.askedMs);
    emit({ type: 'connection.asked', sandbox, name, port, until_ms: question.untilMs });
    return question;
  }

  #settle(question: OpenQuestion, answer: End, goesOn: boolean, reason: string): void {
    const { sandbox, name, port, timer, waiting } = question;
    clearTimeout(timer);
    const open = this.#open.get(sandbox);
    open?.delete(keyOf(name, port));
    if (open?.size === 0) this.#open.delete(sandbox);
    this.#parts.state.removeQuestion(question);
    this.#parts.emit({
      type: 'connection.answered',
      sandbox,
      name,
      port,
      answer,
      connections: waiting.size,
    });
    const each = [...waiting.values()];
    waiting.clear();
    for (const done of each) done(goesOn, reason);
  }

  #rememberRefusal({ sandbox, name, port }: Place): void {
    const refused = this.#refused.get(sandbox) ?? new Map<string, number>();
    if (refused.size >= mostRefused) refused.delete(refused.keys().next().value!);
    this.#refused.set(sandbox, refused.set(keyOf(name, port), this.#parts.now() + refusedMs));
  }
}

const keyOf = (name: string, port: number): string => `${name}:${port}`;
