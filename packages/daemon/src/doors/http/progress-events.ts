import type { ServerEvent } from '../call.ts';

/** Work that says how far it is: each report as an event, and what comes of it as the last one. */
export async function* progressEvents<R, T>(
  work: (report: (progress: R) => void) => Promise<T>,
  toEvent: { readonly progress: (progress: R) => object; readonly result: (result: T) => object },
): AsyncGenerator<ServerEvent, void, undefined> {
  const waiting: R[] = [];
  let wake = Promise.withResolvers<void>();
  const ended = work((progress) => {
    waiting.push(progress);
    wake.resolve();
  });
  const over = ended.then(
    () => true,
    () => true,
  );
  for (let isOver = false; !isOver; ) {
    isOver = (await Promise.race([wake.promise, over])) === true;
    wake = Promise.withResolvers();
    for (const progress of waiting.splice(0)) yield { data: toEvent.progress(progress) };
  }
  yield { data: toEvent.result(await ended) };
}
