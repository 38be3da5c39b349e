import { errorKinds, type Route, routes } from '@coppice/protocol';

const escapeHtml = (text: string): string => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');

const style = `body{font:16px/1.5 system-ui;max-width:70em;margin:2em auto;padding:0 1em}table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.3em .6em;border-bottom:1px solid #ddd;vertical-align:top}code{font:14px ui-monospace,monospace}`;

const rows = (tag: string): string =>
  Object.entries(routes as Record<string, Route>)
    .filter(([, route]) => route.tag === tag)
    .map(
      ([name, route]) =>
        `<tr id="${name}"><td><code>${route.method} ${escapeHtml(route.path)}</code></td><td>${escapeHtml(route.summary)}</td><td>${route.scope}</td><td>${route.answer}</td></tr>`,
    )
    .join('\n');

/** A page for people: what can be called, by whom, and what the errors mean. The whole truth is in openapi.json. */
export const docsPage = (version: string): string => {
  const tags = [...new Set(Object.values(routes as Record<string, Route>).map((route) => route.tag))];
  const errors = Object.entries(errorKinds)
    .map(
      ([code, kind]) =>
        `<tr><td><code>${code}</code></td><td>${kind.status}</td><td>${kind.retryable ? 'yes' : 'no'}</td><td>${escapeHtml(kind.hint)}</td></tr>`,
    )
    .join('\n');
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Coppice API</title><style>${style}</style>
<h1>Coppice API ${version}</h1><p>Send <code>Authorization: Bearer &lt;token&gt;</code>. Parameters, bodies and answers: <a href="/v1/openapi.json">openapi.json</a>.</p>
${tags.map((tag) => `<h2>${tag}</h2><table><tr><th>call</th><th>what it does</th><th>token</th><th>answer</th></tr>${rows(tag)}</table>`).join('\n')}
<h2>errors</h2><table><tr><th>code</th><th>status</th><th>retry</th><th>what to do</th></tr>${errors}</table></html>\n`;
};
