import type { Route, RouteName } from '@coppice/protocol';
import type { z } from 'zod';

type Fields = Readonly<Record<string, unknown>>;
interface Example {
  readonly params?: Fields;
  readonly query?: Fields;
  readonly body?: Fields;
  /** What is sent as bytes, as curl takes it. */
  readonly upload?: string;
}

/** What a field of this name holds where a call does not say otherwise. */
const usual: Fields = {
  sandbox: 'dev',
  snapshot: 'dev:baseline',
  job: 1,
  terminal: 1,
  port: 8080,
  guest_port: 8080,
  repository: 'app',
  issue: '1',
  stray: 'sn_01m7qg4ea49fym2qthztssnf39',
  intervention: 1,
  webhook: 'wh_01m7qg4ea49fym2qthztssnf39',
  pull: 1,
  name: 'dev',
  image: 'tools',
  command: 'uname -a',
  path: '/workspace/app.conf',
  cols: 100,
  rows: 30,
  from: 'dev:baseline',
  to: 'dev',
  url: 'https://example.org/app.git',
  message: 'a first version',
  title: 'The build fails',
  body: 'Seen on main.',
  head: 'fix',
  expected_head: '0123456789abcdef0123456789abcdef01234567',
  sha: '0123456789abcdef0123456789abcdef01234567',
  state: 'success',
  ticket: '1',
  branch: 'fix',
  kind: 'pause',
  reason: 'it repeats itself',
  tasks: [{ name: 'test', command: 'make test' }],
  session: 'one',
  content: 'What was decided.',
  search: 'decided',
  replace: 'done',
  query: 'decided',
  value: 'the-secret',
  scope: 'home',
  answer: 'once',
  source: 'host',
  dockerfile: 'FROM host\nRUN echo built > /built\n',
  registry: 'registry.example.org',
  username: 'me',
  password: 'the-password',
  task: 'Fix the failing test.',
  text: 'Look at the log first.',
  type: 'note',
  success: true,
  passed: true,
  digest: '0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef',
  a: 'one',
  b: 'two',
  project: 'shop',
  experiment: 1,
  agent: 'ag_01m7qg4ea49fym2qthztssnf39',
  run: 'run_01m7qg4ea49fym2qthztssnf39',
  token: 'tok_01m7qg4ea49fym2qthztssnf39',
  secret: 'API_KEY',
  status: 'paused',
  trial: 1,
};

/** Where that would not be a good example of the call, or no example at all. */
const special: Readonly<Partial<Record<RouteName, Example>>> = {
  createToken: { body: { name: 'ci', scope: 'project:default' } },
  createRepository: { body: { name: 'app' } },
  createProject: { body: { name: 'shop' } },
  createSandbox: { body: { name: 'dev', memory_mb: 512 } },
  updateSandbox: { body: { labels: { team: 'core' } } },
  writeFile: { upload: '--data-binary "hello"' },
  uploadArchive: { query: { path: '/workspace' }, upload: '--data-binary @files.tar' },
  downloadArchive: { query: { path: '/workspace' } },
  listFiles: { query: { path: '/workspace' } },
  watchFiles: { query: { path: '/workspace' } },
  makeDirectory: { body: { path: '/workspace/notes' } },
  moveFile: { body: { from: '/workspace/app.conf', to: '/workspace/notes/app.conf' } },
  editFile: { body: { path: '/workspace/app.conf', old_string: 'hello', new_string: 'goodbye' } },
  removeFile: { query: { path: '/workspace/notes', recursive: 'true' } },
  createSnapshot: { body: { name: 'baseline' } },
  forkSandbox: { body: { count: 2, name_prefix: 'try' } },
  importSnapshot: { upload: '--data-binary @dev.coppice' },
  importImage: { upload: '--data-binary @image.tar' },
  sendBuildContext: { upload: '--data-binary @context.tar' },
  merge: { body: { from: 'try-1' } },
  mergeCommits: { body: { from: ['try-1'] } },
  readNote: { query: { path: 'plan.md' } },
  writeNote: { body: { path: 'plan.md', content: 'What was decided.' } },
  deleteNote: { query: { path: 'plan.md' } },
  moveNote: { body: { from: 'plan.md', to: 'done/plan.md' } },
  replaceInNote: { body: { path: 'plan.md', search: 'decided', replace: 'done' } },
  changeFrontmatter: { body: { path: 'plan.md', set: { state: 'open' } } },
  reviewPull: { body: { state: 'approved' } },
  readRunBody: { params: { body: '0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef' } },
  withdrawMessage: { params: { message: 'msg_01m7qg4ea49fym2qthztssnf39' } },
  rewindRun: { body: { to: 1 } },
  reportEvent: { body: { type: 'agent.message', data: { text: 'done' } } },
  limitProject: { body: { cap_usd: 20 } },
  reportMetric: { body: { name: 'profit', value: 1 } },
  restoreProjectSnapshot: { params: { snapshot: 1 } },
  diffFile: { query: { from: 'dev:baseline', to: 'dev', path: '/workspace/app.conf' } },
};

const needed = (schema: z.ZodType | undefined): string[] => {
  const shape = (schema as { shape?: Record<string, z.ZodType> } | undefined)?.shape ?? {};
  return Object.keys(shape).filter((name) => !shape[name]!.safeParse(undefined).success);
};

/** With what must be given, checked by the very schema of the call; `…` stands for what only the reader knows. */
const filled = (schema: z.ZodType | undefined, given: Fields = {}): Fields => {
  if (schema === undefined) return {};
  const names = needed(schema);
  const fields: Fields = { ...Object.fromEntries(names.map((name) => [name, usual[name] ?? '…'])), ...given };
  if (schema.safeParse(fields).success) return fields;
  return { ...Object.fromEntries(names.map((name) => [name, '…'])), ...given };
};

const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** One call for people to copy; undefined for those that curl cannot speak. */
export const curlExample = (call: RouteName, route: Route): string | undefined => {
  if (route.answer === 'socket') return undefined;
  const given = special[call] ?? {};
  const params = filled(route.params, given.params);
  const query = filled(route.query, given.query);
  const body = route.upload ? {} : filled(route.body, given.body);
  const path = route.path.replaceAll(/:(\w+)/g, (_, name: string) =>
    encodeURIComponent(String(params[name])),
  );
  const search = new URLSearchParams(
    Object.entries(query).map(([name, value]) => [name, String(value)]),
  ).toString();
  return [
    'curl -sS --fail-with-body',
    ...(route.scope === 'public' ? [] : ['-H "Authorization: Bearer $COPPICE_TOKEN"']),
    ...(route.method === 'GET' ? [] : [`-X ${route.method}`]),
    ...(route.upload ? [given.upload ?? '--data-binary @file'] : []),
    ...(Object.keys(body).length === 0
      ? []
      : [`-H 'Content-Type: application/json' -d ${quote(JSON.stringify(body))}`]),
    `"$COPPICE_URL${path}${search === '' ? '' : `?${search}`}"`,
  ].join(' ');
};
