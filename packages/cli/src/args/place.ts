/** One side of a copy: a path of this machine, a path of a sandbox, or this command's own input or output. */
export type Place =
  | { readonly kind: 'host'; readonly path: string }
  | { readonly kind: 'sandbox'; readonly sandbox: string; readonly path: string }
  | { readonly kind: 'pipe' };

const inProject = /^[A-Za-z0-9][A-Za-z0-9_.-]*\/[A-Za-z0-9][A-Za-z0-9_.-]*:\//;

/**
 * `name:path` and `project/name:/path` are in a sandbox; any other slash before the first colon, or no colon, means this machine.
 */
export const parsePlace = (text: string): Place => {
  if (text === '-') return { kind: 'pipe' };
  const colon = text.indexOf(':');
  const slash = text.indexOf('/');
  if (colon <= 0 || (slash >= 0 && slash < colon && !inProject.test(text)))
    return { kind: 'host', path: text };
  return { kind: 'sandbox', sandbox: text.slice(0, colon), path: text.slice(colon + 1) || '.' };
};
