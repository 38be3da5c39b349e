import { defaultProject } from '@coppice/protocol';
import { BuildService } from '../builds/build-service.ts';
import { GitService } from '../git/git-service.ts';
import { FileService } from '../inside/file-service.ts';
import { JobService } from '../inside/job-service.ts';
import { TerminalService } from '../inside/terminal-service.ts';
import { ModelAsker } from '../projects/model-asker.ts';
import type { Services } from '../services.ts';
import { PrepareService } from '../swarms/prepare-service.ts';
import { SwarmService } from '../swarms/swarm-service.ts';
import type { Rooms } from './rooms.ts';

/** What the doors may call, and which room answers. */
export function servicesOf(rooms: Rooms): Services {
  const { sandboxes, lifecycle, pauser, snapshots, restorer, forks, exporter, importer, guests } = rooms;
  const { compare, merger, lineage, images, commits } = rooms;
  const { exec, notes, sessions } = rooms;
  /** What a session makes has a lifetime where it does not say otherwise; forks have that of what they grew from. */
  const mortal = <T extends { readonly max_lifetime_s?: number | null | undefined }>(
    input: T,
    session: string | undefined,
  ): T =>
    session === undefined || input.max_lifetime_s !== undefined
      ? input
      : { ...input, max_lifetime_s: sessions.lifetimeS };
  const files = new FileService(guests);
  const inside = {
    sandboxes: {
      find: (ref) => sandboxes.find(ref),
      peek: (ref) => sandboxes.peek(ref),
      environment: (ref) => sandboxes.environment(ref),
      create: (input, call) =>
        sessions.making(call?.session, 1, mortal(input, call?.session), (own) => sandboxes.create(own, call)),
      list: (query) => sandboxes.list(query),
      get: (ref) => sandboxes.get(ref),
      usage: (project) => sandboxes.usage(project),
      update: (ref, input) => sandboxes.update(ref, input),
      start: (ref) => lifecycle.start(ref),
      stop: (ref, graceS) => lifecycle.stop(ref, graceS),
      pause: (ref, keep, caller) => pauser.pause(ref, keep, caller),
      resume: (ref) => pauser.resume(ref),
      destroy: async (ref, { snapshots: become } = { snapshots: 'keep' }) => {
        const { id } = rooms.finder.get(ref);
        await lifecycle.destroy(id);
        const kept = become === 'delete' ? await snapshots.deleteOf(id) : snapshots.keptOf(id);
        return { snapshots: kept };
      },
    },
    snapshots: {
      create: (ref, input, call) => snapshots.create(ref, input, call),
      createTogether: (refs, input, also) => snapshots.createTogether(refs, input, also),
      list: (of) => snapshots.list(of),
      find: (ref) => snapshots.find(ref),
      labels: (ref) => snapshots.labels(ref),
      get: (ref, sandboxRef) => snapshots.get(ref, sandboxRef),
      update: (ref, input) => snapshots.update(ref, input),
      delete: (ref, sandboxRef) => snapshots.delete(ref, sandboxRef),
      restore: (ref, input, call) => restorer.restore(ref, input, call),
      forkSnapshot: (ref, input, call) =>
        sessions.making(call?.session, input.count, input, (own) => forks.forkSnapshot(ref, own, call)),
      forkSandbox: (ref, input, call) =>
        sessions.making(call?.session, input.count, input, (own) => forks.forkSandbox(ref, own, call)),
      export: (ref, options) => exporter.export(ref, options),
      importContents: () => importer.contents(),
      import: (file, input, call) => importer.import(file, input, call),
    },
    strays: rooms.strays,
    exec,
    files,
    network: rooms.networks,
  } satisfies Partial<Services>;
  const builds = new BuildService({
    services: inside,
    images,
    trees: rooms.trees,
    directory: rooms.home.buildsDir,
    now: rooms.now,
  });
  const models = new ModelAsker({ ...inside, gateway: rooms.gatewayService });
  rooms.judge.askBy(
    async (name, model, prompt) => (await models.ask(name, model, prompt, defaultProject)).text,
  );
  const git = new GitService({ exec, files, peek: (ref) => sandboxes.peek(ref) });
  const prepare = new PrepareService({ ...inside, git });
  const swarms = new SwarmService({ ...inside, notes, git, sessions });
  return {
    ...inside,
    compare: {
      diff: (from, to, options, signal) => compare.diff(from, to, options, signal),
      patch: (from, to, options, signal) => compare.patch(from, to, options, signal),
      diffFile: (from, to, file, signal) => compare.diffFile(from, to, file, signal),
      merge: (into, input, call) => merger.merge(into, input, call),
      lineage: (project) => lineage.lineage(project),
    },
    git,
    swarms: {
      prepare: (input, call) => prepare.prepare(input, call),
      run: (ref, input, call) => swarms.run(ref, input, call),
    },
    jobs: new JobService(guests),
    terminals: new TerminalService(guests),
    notes,
    gateway: rooms.gatewayService,
    sessions,
    runs: rooms.runs,
    runWebhooks: rooms.runWebhooks,
    races: rooms.races,
    inside: rooms.inside,
    ports: rooms.ports,
    images: {
      list: (project) => images.list(project),
      get: (ref, project) => images.get(ref, project),
      make: (input, call) => images.make(input, call),
      pull: (name, call) => images.pull(name, call),
      ensure: (name, call) => images.ensure(name, call),
      prune: async ({ all, builds: ofBuilds }) => {
        const deleted = ofBuilds ? await builds.prune() : 0;
        return { ...(await images.prune(all)), build_snapshots: deleted };
      },
      sendContext: (tar) => builds.receive(tar),
      build: (input, call) => builds.build(input, call),
      importTar: (name, tar, call) => images.importTar(name, tar, call),
      commit: (input, call) => commits.commit(input, call),
      push: (ref, to, call) => images.push(ref, to, call),
      export: (ref) => images.export(ref),
      remove: (ref) => images.remove(ref),
    },
    registries: rooms.registryLogins,
    tokens: rooms.tokens,
    pageSessions: rooms.pageSessions,
    events: rooms.events,
    forge: rooms.forge,
    branches: rooms.branches,
    guardian: rooms.guardian,
    runWatch: rooms.runWatch,
    doctor: rooms.doctor,
    health: rooms.health,
    metrics: rooms.metrics,
  };
}
