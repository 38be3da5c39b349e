import type { DefineCommand } from '../verb.ts';

type Load = () => Promise<{ readonly define: DefineCommand }>;

/** Every command with the module that defines it: a call loads only its own. In the order of the help, under its headings. */
const commandGroups = {
  'The daemon': {
    up: () => import('./up.ts'),
    down: () => import('./down.ts'),
    status: () => import('./status.ts'),
    open: () => import('./open.ts'),
    service: () => import('./service.ts'),
    doctor: () => import('./doctor.ts'),
    strays: () => import('./strays.ts'),
    demo: () => import('./demo.ts'),
  },
  Sandboxes: {
    create: () => import('./create.ts'),
    ls: () => import('./ls.ts'),
    info: () => import('./info.ts'),
    update: () => import('./update.ts'),
    start: () => import('./start.ts'),
    stop: () => import('./stop.ts'),
    pause: () => import('./pause.ts'),
    resume: () => import('./resume.ts'),
    rm: () => import('./rm.ts'),
    stats: () => import('./stats.ts'),
  },
  'Working in them': {
    exec: () => import('./exec.ts'),
    run: () => import('./run.ts'),
    each: () => import('./each.ts'),
    shell: () => import('./shell.ts'),
    wait: () => import('./wait.ts'),
    jobs: () => import('./jobs.ts'),
    logs: () => import('./logs.ts'),
    cp: () => import('./cp.ts'),
    pull: () => import('./pull.ts'),
    edit: () => import('./edit.ts'),
  },
  'Going back, branching, comparing': {
    snapshot: () => import('./snapshot.ts'),
    checkpoint: () => import('./checkpoint.ts'),
    snapshots: () => import('./snapshots.ts'),
    keep: () => import('./keep.ts'),
    restore: () => import('./restore.ts'),
    fork: () => import('./fork.ts'),
    diff: () => import('./diff.ts'),
    merge: () => import('./merge.ts'),
    git: () => import('./git.ts'),
    prepare: () => import('./prepare.ts'),
    swarm: () => import('./swarm.ts'),
    tree: () => import('./tree.ts'),
  },
  'Moving to another machine': {
    export: () => import('./export.ts'),
    import: () => import('./import.ts'),
  },
  'Branches and pull requests': {
    branch: () => import('./branch.ts'),
    forge: () => import('./forge.ts'),
    guardian: () => import('./guardian.ts'),
  },
  Network: {
    net: () => import('./net.ts'),
    port: () => import('./port.ts'),
    secret: () => import('./secret.ts'),
  },
  'Models and cost': {
    costs: () => import('./costs.ts'),
    budget: () => import('./budget.ts'),
  },
  Projects: {
    project: () => import('./project.ts'),
    nova: () => import('./nova.ts'),
  },
  Images: {
    images: () => import('./images.ts'),
  },
  'Agents, programs and access': {
    agent: () => import('./agent.ts'),
    mcp: () => import('../mcp/command.ts'),
    notes: () => import('./notes.ts'),
    sessions: () => import('./sessions.ts'),
    events: () => import('./events.ts'),
    token: () => import('./token.ts'),
  },
  'Without the daemon': {
    workspace: () => import('./workspace.ts'),
    completion: () => import('./completion.ts'),
  },
} as const satisfies Record<string, Record<string, Load>>;

type Groups = typeof commandGroups;
export type CommandName = { [Heading in keyof Groups]: keyof Groups[Heading] }[keyof Groups];

const found = Object.entries<Readonly<Record<string, Load>>>(commandGroups).flatMap(([heading, group]) =>
  Object.entries(group).map(([name, load]) => [name, { heading, load }] as const),
);

export const commands = Object.fromEntries(found) as Readonly<
  Record<CommandName, { readonly heading: string; readonly load: Load }>
>;

export const isCommandName = (text: string | undefined): text is CommandName =>
  text !== undefined && Object.hasOwn(commands, text);
