import { type BuildEvent, CoppiceError, type Scope, type SwarmEvent } from '@coppice/protocol';
import type { LayerProgress, PushProgress } from '@coppice/runtime';
import type { DoorServices } from '../door-services.ts';
import type { CallOptions, Principal, Progress } from '../services.ts';
import { once } from '../text/once.ts';
import type { Handlers, ServerEvent } from './call.ts';
import { execEvents } from './http/exec-events.ts';
import { runOverSocket } from './http/exec-socket.ts';
import { layerEvent, occasionally } from './http/layer-events.ts';
import { progressEvents } from './http/progress-events.ts';
import { followRuns } from './http/run-socket.ts';
import { attachTerminal } from './http/terminal-socket.ts';
import { projectHandlers } from './project-handlers.ts';

const done = async (work: Promise<void>): Promise<Record<string, never>> => {
  await work;
  return {};
};

const optionsOf = ({
  signal,
  progress,
  session,
  principal,
}: {
  signal: AbortSignal;
  progress: Progress | undefined;
  session: string | undefined;
  principal: Principal | undefined;
}): CallOptions => ({
  signal,
  by: principal?.scope.kind,
  owner: principal?.owner,
  session,
  ...(progress === undefined ? {} : { progress }),
});

const projectOf = (principal: Principal | undefined): string | undefined =>
  principal?.scope.kind === 'project' ? principal.scope.project : undefined;
/** What the caller may see of what is everybody's. */
const scopeOf = (principal: Principal | undefined): Scope => {
  if (principal === undefined) throw new CoppiceError('unauthenticated', 'a token is needed');
  return principal.scope;
};

/** Which run it is about stands in the token, and nowhere else. */
const runOf = (principal: Principal | undefined): string => {
  if (principal?.scope.kind !== 'run')
    throw new CoppiceError('forbidden', 'this call needs the token of a run');
  return principal.scope.runId;
};

const items = async <T>(work: Promise<T[]>): Promise<{ items: T[] }> => ({ items: await work });

async function* numbered<T extends { seq: number }>(events: AsyncIterable<T>): AsyncIterable<ServerEvent> {
  for await (const event of events) yield { id: String(event.seq), data: event };
}

async function* plain(events: AsyncIterable<unknown>): AsyncIterable<ServerEvent> {
  for await (const data of events) yield { data };
}

/** One handler for each route: it calls one service and gives back what that says. */
export const createHandlers = (services: DoorServices): Handlers => ({
  health: () => services.health.check(),
  doctor: () => services.doctor.examine(),
  metrics: () => services.metrics.text(),
  listEvents: ({ query, principal }) => services.events.list({ ...query, scope: scopeOf(principal) }),
  streamEvents: async ({ query, lastEventId, signal, principal }) => {
    const after =
      lastEventId !== undefined && /^\d{1,15}$/.test(lastEventId) ? Number(lastEventId) : query.after;
    return numbered(services.events.follow({ ...query, after, scope: scopeOf(principal) }, signal));
  },

  listSandboxes: ({ query }) => items(services.sandboxes.list(query)),
  createSandbox: ({ body, ...call }) => services.sandboxes.create(body, optionsOf(call)),
  getSandbox: ({ params }) => services.sandboxes.get(params.sandbox),
  updateSandbox: ({ params, body }) => services.sandboxes.update(params.sandbox, body),
  destroySandbox: ({ params, query }) => services.sandboxes.destroy(params.sandbox, query),
  listUsage: ({ query }) => items(services.sandboxes.usage(query.project)),
  startSandbox: ({ params }) => services.sandboxes.start(params.sandbox),
  stopSandbox: ({ params, body }) => services.sandboxes.stop(params.sandbox, body.grace_s),
  pauseSandbox: ({ params, body, signal }) => services.sandboxes.pause(params.sandbox, body.keep, signal),
  resumeSandbox: ({ params }) => services.sandboxes.resume(params.sandbox),

  exec: ({ params, body, signal }) => services.exec.run(params.sandbox, body, signal),
  execEvents: ({ params, body, signal }) => execEvents(services.exec, params.sandbox, body, signal),
  execStream: ({ params }, socket) => runOverSocket(services.exec, params.sandbox, socket),
  startJob: ({ params, body }) => services.jobs.start(params.sandbox, body),
  listJobs: ({ params }) => items(services.jobs.list(params.sandbox)),
  getJob: ({ params }) => services.jobs.get(params.sandbox, params.job),
  readJob: ({ params, query }) => services.jobs.readLog(params.sandbox, params.job, query),
  signalJob: ({ params, body }) => done(services.jobs.signal(params.sandbox, params.job, body.signal)),
  openTerminal: ({ params, body }) => services.terminals.open(params.sandbox, body),
  listTerminals: ({ params }) => items(services.terminals.list(params.sandbox)),
  attachTerminal: ({ params, query }, socket) =>
    attachTerminal(services.terminals, params.sandbox, params.terminal, query.show, socket),
  resizeTerminal: ({ params, body }) =>
    done(services.terminals.resize(params.sandbox, params.terminal, body.cols, body.rows)),
  signalTerminal: ({ params, body }) =>
    done(services.terminals.signal(params.sandbox, params.terminal, body.signal)),

  readFile: async ({ params, query }) => {
    const { bytes, sizeBytes } = await services.files.read(params.sandbox, query.path, query);
    return { bytes, contentType: 'application/octet-stream', ...(sizeBytes < 0 ? {} : { sizeBytes }) };
  },
  writeFile: ({ params, query, upload }) => services.files.write(params.sandbox, query, upload),
  editFile: ({ params, body }) => services.files.edit(params.sandbox, body),
  listFiles: ({ params, query }) => services.files.list(params.sandbox, query.path, query),
  statFile: ({ params, query }) => services.files.stat(params.sandbox, query.path),
  moveFile: ({ params, body }) => done(services.files.move(params.sandbox, body.from, body.to)),
  makeDirectory: ({ params, body }) => done(services.files.makeDirectory(params.sandbox, body)),
  removeFile: ({ params, query }) => done(services.files.remove(params.sandbox, query.path, query.recursive)),
  watchFiles: async ({ params, query, signal }) =>
    plain(await services.files.watch(params.sandbox, query.path, query.recursive, signal)),
  downloadArchive: async ({ params, query }) => ({
    bytes: await services.files.pack(params.sandbox, query.path),
    contentType: 'application/x-tar',
  }),
  uploadArchive: ({ params, query, upload }) => services.files.unpack(params.sandbox, query.path, upload),

  createSnapshot: ({ params, body, ...call }) =>
    services.snapshots.create(params.sandbox, body, optionsOf(call)),
  listSandboxSnapshots: ({ params }) => items(services.snapshots.list(params)),
  listSnapshots: ({ query }) => items(services.snapshots.list(query)),
  getSnapshot: ({ params }) => services.snapshots.get(params.snapshot),
  updateSnapshot: ({ params, body }) => services.snapshots.update(params.snapshot, body),
  deleteSnapshot: ({ params }) => done(services.snapshots.delete(params.snapshot)),
  exportSnapshot: async ({ params, body }) => ({
    ...(await services.snapshots.export(params.snapshot, body)),
    contentType: 'application/vnd.coppice.export',
  }),
  importContents: () => services.snapshots.importContents(),
  importSnapshot: ({ query, upload, ...call }) => services.snapshots.import(upload, query, optionsOf(call)),
  listStrays: () => items(services.strays.list()),
  keepStray: ({ params, body }) => services.strays.keep(params.stray, body),
  deleteStray: ({ params }) => done(services.strays.delete(params.stray)),

  restoreSandbox: ({ params, body, ...call }) =>
    services.snapshots.restore(params.sandbox, body, optionsOf(call)),
  forkSnapshot: ({ params, body, ...call }) =>
    services.snapshots.forkSnapshot(params.snapshot, body, optionsOf(call)),
  forkSandbox: ({ params, body, ...call }) =>
    services.snapshots.forkSandbox(params.sandbox, body, optionsOf(call)),
  diff: ({ query, signal }) => services.compare.diff(query.from, query.to, query, signal),
  diffPatch: ({ query, signal }) => services.compare.patch(query.from, query.to, query, signal),
  diffFile: ({ query: { from, to, ...file }, signal }) => services.compare.diffFile(from, to, file, signal),
  merge: ({ params, body, signal }) => services.compare.merge(params.sandbox, body, { signal }),
  gitStatus: ({ params, query, signal }) => services.git.status(params.sandbox, query, { signal }),
  gitDiff: ({ params, query, signal }) => services.git.diff(params.sandbox, query, { signal }),
  gitClone: ({ params, body, signal }) => services.git.clone(params.sandbox, body, { signal }),
  gitCommit: ({ params, body, signal }) => services.git.commit(params.sandbox, body, { signal }),
  gitPush: ({ params, body, signal }) => services.git.push(params.sandbox, body, { signal }),
  mergeCommits: ({ params, body, ...call }) => services.git.merge(params.sandbox, body, optionsOf(call)),
  runsHealth: () => items(services.runWatch.list()),
  quarantineRun: ({ params, body, principal }) =>
    services.runWatch.quarantine(params.run, body.reason, principal?.tokenId),
  clearRun: ({ params, body, principal }) =>
    services.runWatch.clear(params.run, body.reason, principal?.tokenId),
  guardianStatus: async () => services.guardian.status(),
  conductor: () => services.guardian.conductor(),
  intervene: ({ params, body, principal }) =>
    services.guardian.intervene(params.run, body, principal?.tokenId),
  listInterventions: ({ params }) => items(services.guardian.list(params.run)),
  revertIntervention: ({ params, principal }) =>
    services.guardian.revert(params.intervention, principal?.tokenId),
  guardianDryRun: ({ params, body }) => services.guardian.dryRun(params.run, body.rules),
  judgeRun: ({ params }) => services.guardian.judge(params.run),
  startBranch: ({ body }) => services.branches.start(body),
  finishBranch: ({ body }) => services.branches.finish(body),
  mergeBranch: ({ body }) => services.branches.merge(body),
  branchStatus: ({ query }) => services.branches.status(query),
  listBranches: ({ query }) => items(services.branches.list(query)),
  listRepositories: () => items(services.forge.list()),
  createRepository: ({ body }) => services.forge.create(body),
  getRepository: ({ params }) => services.forge.get(params.repository),
  removeRepository: ({ params }) => done(services.forge.remove(params.repository)),
  examineForge: ({ params }) => services.forge.doctor(params.repository),
  listIssues: ({ params }) => items(services.forge.issues(params.repository)),
  createIssue: ({ params, body }) => services.forge.createIssue(params.repository, body),
  getIssue: ({ params }) => services.forge.issue(params.repository, params.issue),
  listIssueComments: ({ params }) => items(services.forge.comments(params.repository, params.issue)),
  commentIssue: ({ params, body }) => services.forge.comment(params.repository, params.issue, body),
  listPulls: ({ params, query }) => items(services.forge.pulls(params.repository, query.state)),
  createPull: ({ params, body }) => services.forge.createPull(params.repository, body),
  getPull: ({ params }) => services.forge.pull(params.repository, params.pull),
  closePull: ({ params }) => services.forge.closePull(params.repository, params.pull),
  mergePull: ({ params, body }) => services.forge.mergePull(params.repository, params.pull, body),
  listReviews: ({ params }) => items(services.forge.reviews(params.repository, params.pull)),
  reviewPull: ({ params, body, principal }) =>
    services.forge.review(params.repository, params.pull, principal?.tokenId, body),
  listChecks: ({ params }) => items(services.forge.checks(params.repository, params.sha)),
  reportCheck: ({ params, body }) => done(services.forge.reportCheck(params.repository, body)),

  prepareSandbox: async ({ body, ...call }) =>
    progressEvents(
      (report: (message: string) => void) =>
        services.swarms.prepare(body, { ...optionsOf(call), progress: ({ message }) => report(message) }),
      {
        progress: (message) => ({ type: 'progress', message }),
        result: (prepared) => ({ type: 'prepared', ...prepared }),
      },
    ),
  runSwarm: async ({ params, body, ...call }) =>
    progressEvents(
      (report: (event: SwarmEvent) => void) =>
        services.swarms.run(params.sandbox, body, {
          ...optionsOf(call),
          progress: ({ message }) => report({ type: 'progress', message }),
          onTask: (task, done, total) => report({ type: 'task', task, done, total }),
        }),
      { progress: (event) => event, result: (swarm) => ({ type: 'swarm', swarm }) },
    ),

  listSessions: () => items(services.sessions.list()),
  adoptSandbox: ({ params, body }) => services.sessions.adopt(params.sandbox, body.session, body.force),
  listNotes: ({ query }) => items(services.notes.list(query.folder, query.recursive)),
  readNote: ({ query }) => services.notes.note(query.path, query.format),
  writeNote: ({ body }) => services.notes.write(body),
  deleteNote: ({ query }) => done(services.notes.remove(query.path)),
  moveNote: ({ body }) => done(services.notes.move(body.from, body.to, body.overwrite)),
  replaceInNote: async ({ body: { path, search, replace, regex } }) => ({
    path,
    replacements: await services.notes.replace(path, search, replace, regex),
  }),
  searchNotes: ({ query: { regex, ...query } }) => services.notes.search({ ...query, isRegex: regex }),
  changeFrontmatter: ({ body: { path, ...changes } }) => services.notes.changeFrontmatter(path, changes),
  listNoteTags: async ({ query }) => ({ tags: await services.notes.tags(query.path) }),
  lineage: async ({ query }) => ({ nodes: await services.compare.lineage(query.project) }),

  setCaller: ({ params, body }) => services.gateway.setCaller(params.sandbox, body),
  getCaller: ({ params }) => services.gateway.callerOf(params.sandbox),
  setSecret: ({ params, body }) => done(services.gateway.setSecret(params.secret, body)),
  rekeySecrets: () => done(services.gateway.rekey()),
  listSecrets: () => items(services.gateway.listSecrets()),
  removeSecret: ({ params }) => done(services.gateway.removeSecret(params.secret)),
  getCosts: ({ query, principal }) => services.gateway.costs(query, scopeOf(principal)),
  setBudget: ({ body }) => services.gateway.setBudget(body),
  listBudgets: ({ principal }) => items(services.gateway.listBudgets(scopeOf(principal))),
  removeBudget: ({ query }) => done(services.gateway.removeBudget(query)),
  setNetwork: ({ params, body }) => services.network.patch(params.sandbox, body),
  listConnections: async ({ params, query, signal }) => ({
    connections: await services.network.connections(params.sandbox, query, signal),
  }),
  listQuestions: ({ params }) => items(services.network.questions(params.sandbox)),
  answerQuestion: ({ params, body }) => services.network.answer(params.sandbox, body),
  forwardPort: ({ params, body }) => services.ports.add(params.sandbox, body.guest_port, body.host_port),
  listPorts: ({ params }) => items(services.ports.list(params.sandbox)),
  waitForPort: ({ params, body, signal }) =>
    services.ports.wait(params.sandbox, params.port, body.timeout_ms, signal),
  removePort: ({ params }) => done(services.ports.remove(params.sandbox, params.port)),

  listImages: ({ principal }) => items(services.images.list(projectOf(principal))),
  makeImage: ({ body, ...call }) => services.images.make(body, optionsOf(call)),
  importImage: ({ query, upload, ...call }) => services.images.importTar(query.name, upload, optionsOf(call)),
  pullImage: async ({ body, signal }) =>
    progressEvents(
      (report: (progress: LayerProgress) => void) =>
        services.images[body.if_missing ? 'ensure' : 'pull'](body.name, {
          signal,
          onLayer: occasionally(report),
        }),
      { progress: layerEvent, result: (image) => ({ type: 'image', image }) },
    ),
  sendBuildContext: ({ upload }) => services.images.sendContext(upload),
  buildImage: async ({ body, signal }) =>
    progressEvents(
      (report: (event: BuildEvent) => void) => services.images.build(body, { signal, onEvent: report }),
      { progress: (event) => event, result: (image) => ({ type: 'image', image }) },
    ),
  commitImage: ({ body, ...call }) => services.images.commit(body, optionsOf(call)),
  pushImage: async ({ params, body, signal }) =>
    progressEvents(
      (report: (progress: PushProgress) => void) =>
        services.images.push(params.image, body.to, { signal, onLayer: occasionally(report) }),
      { progress: layerEvent, result: (pushed) => ({ type: 'pushed', ...pushed }) },
    ),
  exportImage: async ({ params }) => ({
    ...(await services.images.export(params.image)),
    contentType: 'application/x-tar',
  }),
  pruneImages: ({ body }) => services.images.prune(body),
  listRegistries: () => items(services.registries.list()),
  loginRegistry: ({ body, signal }) => services.registries.login(body, signal),
  logoutRegistry: ({ params }) => done(services.registries.logout(params.registry)),
  getImage: ({ params, principal }) => services.images.get(params.image, projectOf(principal)),
  removeImage: ({ params }) => done(services.images.remove(params.image)),

  ...projectHandlers(services),

  listTokens: () => items(services.tokens.list()),
  createToken: ({ body }) => services.tokens.create(body),
  revokeToken: ({ params }) => done(services.tokens.revoke(params.token)),
  whoami: async ({ principal }) => services.pageSessions.describe(principal!),
  createPageLink: async ({ principal }) => services.pageSessions.link(principal!),

  startRun: ({ body }) => services.runs.start(body),
  listRuns: ({ query }) => items(services.runs.list(query)),
  listAgents: () => items(services.runs.agents()),
  compareRuns: ({ query }) => services.runs.compare(query.a, query.b),
  runSocket: (_call, socket) => followRuns(services.runs, socket),
  getRun: ({ params }) => services.runs.get(params.run),
  removeRun: ({ params }) => done(services.runs.remove(params.run)),
  getRunResult: ({ params }) => services.runs.result(params.run),
  listRunEvents: ({ params, query }) => services.runs.events(params.run, query),
  streamRunEvents: async ({ params, query, lastEventId, signal }) => {
    const after =
      lastEventId !== undefined && /^\d{1,15}$/.test(lastEventId) ? Number(lastEventId) : query.after;
    return numbered(await services.runs.follow(params.run, { ...query, after }, signal));
  },
  getTrajectory: ({ params, query }) => services.runs.trajectory(params.run, query),
  readRunBody: async ({ params }) => {
    const bytes = await services.runs.body(params.run, params.body);
    return { bytes: once(bytes), contentType: 'text/plain; charset=utf-8', sizeBytes: bytes.length };
  },
  tellRun: ({ params, body }) => services.runs.tell(params.run, body),
  listRunMessages: ({ params }) => items(services.runs.messages(params.run)),
  withdrawMessage: ({ params }) => services.runs.withdraw(params.run, params.message),
  interruptRun: ({ params, body }) => services.runs.interrupt(params.run, body.reason),
  pauseRun: ({ params }) => services.runs.pause(params.run),
  resumeRun: ({ params }) => services.runs.resume(params.run),
  stopRun: ({ params, body }) => services.runs.stop(params.run, body.reason),
  listSteps: ({ params }) => items(services.runs.steps(params.run)),
  takeStep: ({ params, body }) => services.runs.takeStep(params.run, body.title),
  rewindRun: ({ params, body }) => services.runs.rewind(params.run, body),
  forkRun: ({ params, body }) => services.runs.fork(params.run, body),
  listRunWebhooks: () => items(services.runWebhooks.list()),
  addRunWebhook: ({ body }) => services.runWebhooks.add(body),
  resumeRunWebhook: ({ params, body }) => services.runWebhooks.resume(params.webhook, body),
  removeRunWebhook: ({ params }) => done(services.runWebhooks.remove(params.webhook)),
  raceRun: ({ params, body }) => services.races.start(params.run, body),
  listRaces: ({ params }) => items(services.races.list(params.run)),
  getRace: ({ params }) => services.races.get(params.run, params.race),
  reportEvent: ({ principal, body }) => services.inside.report(runOf(principal), body),
  fetchMessages: ({ principal, query, signal }) =>
    items(services.inside.messages(runOf(principal), query, signal)),
  reportHeartbeat: ({ principal, body }) => services.inside.heartbeat(runOf(principal), body.status),
  reportDone: ({ principal, body }) => done(services.inside.done(runOf(principal), body)),
});
