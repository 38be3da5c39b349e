/** What was thrown, with its causes, and with every text in it cleaned; for a log. */
export const cleanError = (thrown: unknown, clean: (text: string) => string): unknown => {
  if (!(thrown instanceof Error)) return clean(String(thrown));
  const copy = new Error(clean(thrown.message), {
    ...(thrown.cause === undefined ? {} : { cause: cleanError(thrown.cause, clean) }),
  });
  return Object.assign(copy, { name: thrown.name, stack: clean(thrown.stack ?? '') });
};
