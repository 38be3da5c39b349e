import type { ProjectsRoom } from './projects/projects-room.ts';
import type { Services } from './services.ts';

/**
 * A service as callers on another machine would see it: every call answers later, as a promise or a stream. Rooms of one
 * daemon call each other directly; only what is behind this type may be elsewhere (ADR 0016).
 */
type Remote<T> = {
  readonly [K in keyof T]: T[K] extends (...args: infer A) => infer R
    ? (...args: A) => R extends Promise<unknown> | AsyncIterable<unknown> ? R : Promise<R>
    : T[K] extends object
      ? Remote<T[K]>
      : T[K];
};

interface Rooms extends Services {
  readonly projects: Pick<
    ProjectsRoom,
    'service' | 'experiments' | 'ending' | 'evaluator' | 'production' | 'snapshots' | 'notifier' | 'finder'
  >;
}

/** Everything that the doors may call. */
export type DoorServices = Remote<Rooms>;

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;
const isLater = (value: unknown): boolean =>
  isObject(value) && (value instanceof Promise || Symbol.asyncIterator in value);

/** The rooms of this daemon behind that type: what they answer at once is answered later, failures included. */
export const doorServicesOf = (rooms: Rooms): DoorServices => remote(rooms) as DoorServices;

const remote = (service: object): object => {
  const members = new Map<PropertyKey, unknown>();
  return new Proxy(service, {
    get: (target, key) => {
      if (!members.has(key)) members.set(key, member(target, Reflect.get(target, key, target)));
      return members.get(key);
    },
  });
};

const member = (target: object, value: unknown): unknown => {
  if (typeof value !== 'function') return isObject(value) ? remote(value) : value;
  return (...args: unknown[]): unknown => {
    try {
      const answer: unknown = Reflect.apply(value, target, args);
      return isLater(answer) ? answer : Promise.resolve(answer);
    } catch (error) {
      return Promise.reject(error);
    }
  };
};
