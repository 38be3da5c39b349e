import { setTimeout as sleep } from 'node:timers/promises';
import { type BareRepository, branchNameFor, type Forge } from '@coppice/forge';
import {
  type Branch,
  type branchQuery,
  type Check,
  CoppiceError,
  type finishBranchSchema,
  type mergeBranchSchema,
  type Pull,
  type Review,
  type StartBranch,
  type StartRun,
} from '@coppice/protocol';
import type { z } from 'zod';
import type { BranchRecord } from '../db/branch-table.ts';
import type { RepositoryRecord } from '../db/forge-table.ts';
import type { State } from '../db/state.ts';
import type { Journal } from '../journal/journal.ts';
import { KeyedLock } from '../journal/keyed-lock.ts';
import type { BranchSandbox } from './branch-sandbox.ts';

export interface BranchServiceParts {
  readonly state: State;
  readonly journal: Journal;
  readonly now: () => number;
  readonly forge: {
    forgeOf(ref: string): Forge;
    repositoryOf(ref: string): BareRepository;
    bringIn(ref: string, branches: readonly string[]): Promise<void>;
    advance(ref: string, branch: string, to: string, expected: string): Promise<void>;
  };
  readonly sandbox: Pick<BranchSandbox, 'make' | 'checkOut' | 'commitAll' | 'bringOut'>;
  readonly destroySandbox: (id: string) => Promise<unknown>;
  readonly startRun: (spec: StartRun) => Promise<{ readonly id: string }>;
  /** The first of the pauses between tries; each is twice the one before. */
  readonly pauseMs?: number;
}

type Query = z.output<typeof branchQuery>;

const tries = 3;
const mergeableTries = 10;
const runLabels = { repository: 'coppice.repository', branch: 'coppice.branch' } as const;

/**
 * From a ticket to a merge: branch, sandbox, run, commits, pull request, merge. Each step is written down before the next begins
 * and looks first whether it has happened, so that whoever asks again after a failure or a crash goes on, and nothing is made twice.
 */
export class BranchService {
  readonly #parts: BranchServiceParts;
  readonly #locks = new KeyedLock();

  constructor(parts: BranchServiceParts) {
    this.#parts = parts;
  }

  async start(spec: StartBranch): Promise<Branch> {
    const repository = this.#repository(spec.repository);
    return this.#locks.exclusive(`${repository.id} ${spec.ticket}`, async () => {
      const known = this.#parts.state.branches.find(repository.id, spec.ticket);
      const record =
        known === undefined || known.ticket !== spec.ticket || known.state === 'merged'
          ? await this.#record(repository, spec)
          : known;
      return this.#view(await this.#begin(repository, record));
    });
  }

  async finish({ message, ...query }: z.output<typeof finishBranchSchema>): Promise<Branch> {
    const { repository, record } = this.#find(query);
    return this.#locks.exclusive(`${repository.id} ${record.ticket}`, async () =>
      this.#view(await this.#bring(repository, this.#again(record), message)),
    );
  }

  async merge(input: z.output<typeof mergeBranchSchema>): Promise<Branch> {
    const { repository, record } = this.#find(input);
    return this.#locks.exclusive(`${repository.id} ${record.ticket}`, () =>
      this.#merge(repository, this.#again(record), input),
    );
  }

  async status(query: Query): Promise<Branch> {
    return this.#view(this.#find(query).record);
  }

  async list({ repository }: { repository?: string | undefined }): Promise<Branch[]> {
    const id = repository === undefined ? undefined : this.#repository(repository).id;
    return this.#parts.state.branches.all(id).map((record) => this.#known(record));
  }

  /** A run has done its work: what it made becomes a pull request. */
  async afterRun(labels: Readonly<Record<string, string>> | undefined): Promise<void> {
    const repository = labels?.[runLabels.repository];
    const branch = labels?.[runLabels.branch];
    if (repository !== undefined && branch !== undefined) await this.finish({ repository, branch });
  }

  async #record(repository: RepositoryRecord, spec: StartBranch): Promise<BranchRecord> {
    const { state, journal, now } = this.#parts;
    const forge = this.#parts.forge.forgeOf(repository.id);
    const ticket = await this.#ticket(forge, spec);
    const base = spec.base ?? (await forge.defaultBranch());
    const found = await forge.branch(base);
    if (found === undefined)
      throw new CoppiceError('not_found', `${repository.name} has no branch ${base} to start from`, {
        hint: `Push one: git push $(coppice forge clone-url ${repository.name}) ${base}`,
      });
    const branch = await branchNameFor(
      ticket,
      async (name) =>
        state.branches.find(repository.id, name)?.branch === name || (await forge.branch(name)) !== undefined,
    );
    const record: BranchRecord = {
      repositoryId: repository.id,
      branch,
      ticket: ticket.id,
      title: ticket.title,
      base,
      baseSha: found.sha,
      state: 'starting',
      spec,
      sandboxId: null,
      runId: null,
      pull: null,
      headSha: null,
      mergeSha: null,
      error: null,
      createdAtMs: now(),
    };
    journal.commit((emit) => {
      state.branches.insert(record);
      emit('branch.starting', null, { repository: repository.name, branch, ticket: ticket.id });
    });
    journal.step('branch-start.recorded');
    return record;
  }

  async #ticket(forge: Forge, { ticket, title, type, critical }: StartBranch) {
    if (title !== undefined)
      return { id: ticket, title, type: type ?? 'feature', critical: critical ?? false } as const;
    const issue = await forge.issue(ticket);
    return {
      id: ticket,
      title: issue.title,
      type: type ?? issue.type,
      critical: critical ?? issue.critical,
    };
  }

  async #begin(repository: RepositoryRecord, begun: BranchRecord): Promise<BranchRecord> {
    if (begun.state !== 'starting') return begun;
    const { journal, sandbox, forge } = this.#parts;
    let record = begun;
    const { branch, baseSha, spec } = record;
    await this.#makeBranch(forge.forgeOf(repository.id), branch, baseSha);
    journal.step('branch-start.branch-made');
    await forge.bringIn(repository.id, [branch, record.base]);
    const sandboxId = await sandbox.make(record);
    record = this.#update(record, { sandboxId });
    journal.step('branch-start.sandbox-made');
    await sandbox.checkOut(sandboxId, forge.repositoryOf(repository.id), record);
    journal.step('branch-start.cloned');
    if (spec.run !== undefined && record.runId === null)
      record = await this.#startRun(repository, record, sandboxId);
    return this.#update(record, { state: 'started', error: null }, 'branch.started');
  }

  /** By a name that only this branch has, so that a second try finds the first. */
  async #startRun(
    repository: RepositoryRecord,
    record: BranchRecord,
    sandboxId: string,
  ): Promise<BranchRecord> {
    const { startRun, journal, state } = this.#parts;
    const { branch, ticket, spec } = record;
    const name = `${repository.name}-${branch}`.replace(/[^A-Za-z0-9_.-]+/g, '-').slice(0, 63);
    const known = state.runs.byName(name);
    const mine = known?.spec.labels?.[runLabels.branch] === branch && known.sandboxId === sandboxId;
    const run = mine
      ? known
      : await startRun({
          ...spec.run!,
          name,
          ticket,
          sandbox: sandboxId,
          cwd: '/workspace',
          labels: { [runLabels.repository]: repository.name, [runLabels.branch]: branch },
        });
    journal.step('branch-start.run-started');
    return this.#update(record, { runId: run.id });
  }

  async #makeBranch(forge: Forge, branch: string, sha: string): Promise<void> {
    await this.#tried(
      async () => (await forge.branch(branch)) !== undefined,
      () => forge.createBranch(branch, sha),
    );
  }

  async #bring(
    repository: RepositoryRecord,
    record: BranchRecord,
    message: string | undefined,
  ): Promise<BranchRecord> {
    const { journal, sandbox, forge } = this.#parts;
    if (record.state === 'merged') return record;
    if (record.state === 'starting' || record.sandboxId === null)
      throw new CoppiceError('wrong_state', `${record.branch} has not been started whole`, {
        hint: `Start it again: coppice branch start ${repository.name} ${record.ticket}`,
      });
    const there = forge.forgeOf(repository.id);
    const bare = forge.repositoryOf(repository.id);
    const before = await there.branch(record.branch);
    if (before === undefined)
      throw new CoppiceError('not_found', `the branch ${record.branch} is gone from ${repository.name}`, {
        hint: 'Make it again at the forge; the commits are in the sandbox.',
      });
    await forge.bringIn(repository.id, [record.branch]);
    const sha = await sandbox.commitAll(
      record.sandboxId,
      record,
      message ?? `[${record.ticket}] ${record.title}`,
    );
    if (sha !== before.sha) {
      const taken = await sandbox.bringOut(record.sandboxId, bare, record, before.sha);
      if (taken !== sha) throw new CoppiceError('corrupt', `the sandbox gave ${taken} in place of ${sha}`);
      if (!(await bare.isAncestor(before.sha, sha)))
        throw new CoppiceError(
          'conflict',
          `${record.branch} has commits at the forge that the sandbox lacks`,
          {
            hint: 'Nothing is overwritten. Bring them into the sandbox, then finish again.',
            details: { reason: 'head_moved', head: before.sha },
          },
        );
      await forge.advance(repository.id, record.branch, sha, before.sha);
    }
    if ((await there.compare(record.base, record.branch)).ahead === 0)
      throw new CoppiceError('wrong_state', `nothing was committed on ${record.branch}`, {
        hint: 'There is nothing to review yet.',
      });
    const brought = this.#update(record, { headSha: sha, error: null });
    journal.step('branch-finish.brought');
    return this.#openPull(there, brought);
  }

  async #openPull(forge: Forge, record: BranchRecord): Promise<BranchRecord> {
    const { branch, base, ticket, title } = record;
    try {
      await this.#tried(
        async () => (await forge.findPull(branch)) !== undefined,
        () =>
          forge.createPull({
            head: branch,
            base,
            title: `[${ticket}] ${title}`,
            body: `Resolves #${ticket}`,
          }),
      );
      const pull = await forge.findPull(branch);
      if (pull === undefined) throw new CoppiceError('not_found', `the pull request of ${branch} is gone`);
      this.#parts.journal.step('branch-finish.pull-opened');
      return this.#update(record, { pull: pull.number, state: 'in_review', error: null }, 'branch.in_review');
    } catch (error) {
      // The commits are safe on their branch; a person, or the next try, opens the pull request.
      if (error instanceof CoppiceError)
        this.#update(record, { state: 'needs_review', error: error.message }, 'branch.needs_review');
      throw error;
    }
  }

  async #merge(
    repository: RepositoryRecord,
    record: BranchRecord,
    { method, expected_head, keep_sandbox }: z.output<typeof mergeBranchSchema>,
  ): Promise<Branch> {
    const { journal, forge } = this.#parts;
    if (record.state !== 'merged' && (record.pull === null || record.headSha === null))
      throw new CoppiceError('wrong_state', `${record.branch} has no pull request yet`, {
        hint: `Finish it first: coppice branch finish ${repository.name} ${record.ticket}`,
      });
    const there = forge.forgeOf(repository.id);
    let merged = record;
    if (record.state !== 'merged') {
      const pull = await settledPull(there, record.pull!);
      if (pull.state === 'closed')
        throw new CoppiceError('wrong_state', `pull request ${pull.number} of ${record.branch} was closed`);
      if (pull.state === 'open') {
        if (pull.mergeable === false) return this.#inConflict(record);
        assertGood(await there.checks(pull.head_sha), await there.reviews(pull.number), record);
      }
      try {
        const { sha } = await there.mergePull(pull.number, {
          expectedHead: expected_head ?? record.headSha!,
          method,
        });
        merged = this.#update(record, { state: 'merged', mergeSha: sha, error: null }, 'branch.merged');
      } catch (error) {
        if (error instanceof CoppiceError && error.details?.reason === 'merge_conflict')
          return this.#inConflict(record);
        throw error;
      }
      journal.step('branch-merge.merged');
    }
    await this.#tidy(there, merged, keep_sandbox);
    return this.#view(this.#again(merged));
  }

  /** After a merge: what is gone already is fine. */
  async #tidy(forge: Forge, record: BranchRecord, keepSandbox: boolean): Promise<void> {
    if ((await forge.branch(record.branch)) !== undefined) await forge.deleteBranch(record.branch);
    if (record.sandboxId !== null && !keepSandbox) {
      await this.#parts.destroySandbox(record.sandboxId).catch((error: unknown) => {
        if (!(error instanceof CoppiceError && error.code === 'not_found')) throw error;
      });
      this.#update(record, { sandboxId: null });
    }
    this.#parts.journal.step('branch-merge.tidied');
  }

  async #inConflict(record: BranchRecord): Promise<Branch> {
    const told = this.#update(record, { error: `${record.branch} is in conflict with ${record.base}` });
    return { ...(await this.#view(told)), success: false, has_conflicts: true };
  }

  /** Again after a failure that may pass; but first a look whether the last try has done it after all. */
  async #tried(isDone: () => Promise<boolean>, work: () => Promise<unknown>): Promise<void> {
    const { pauseMs = 1000 } = this.#parts;
    for (let n = 1; ; n += 1) {
      try {
        if (await isDone()) return;
        await work();
        return;
      } catch (error) {
        const passes =
          error instanceof CoppiceError && ['unavailable', 'rate_limited', 'timeout'].includes(error.code);
        if (!passes || n === tries) throw error;
        await sleep(pauseMs * 2 ** (n - 1));
      }
    }
  }

  async #view(record: BranchRecord): Promise<Branch> {
    const forge = this.#parts.forge.forgeOf(record.repositoryId);
    const found = await forge.branch(record.branch);
    const apart =
      found === undefined ? { ahead: 0, behind: 0 } : await forge.compare(record.base, record.branch);
    const pull = record.pull === null ? undefined : await forge.pull(record.pull);
    return {
      ...this.#known(record),
      sha: found?.sha ?? null,
      ahead_by: apart.ahead,
      behind_by: apart.behind,
      pr_url: pull?.url ?? null,
      has_conflicts: pull?.state === 'open' && pull.mergeable === false,
      checks: pull === undefined ? 'none' : sumOfChecks(await forge.checks(pull.head_sha)),
      reviews: pull === undefined ? 'none' : sumOfReviews(await forge.reviews(pull.number)),
    };
  }

  /** Without asking the forge. */
  #known(record: BranchRecord): Branch {
    return {
      success: true,
      repository: this.#repository(record.repositoryId).name,
      branch_name: record.branch,
      ticket: record.ticket,
      title: record.title,
      state: record.state,
      base: record.base,
      sha: record.headSha ?? record.baseSha,
      ahead_by: 0,
      behind_by: 0,
      sandbox_id: record.sandboxId,
      run_id: record.runId,
      pr_number: record.pull,
      pr_url: null,
      has_conflicts: false,
      checks: 'none',
      reviews: 'none',
      merge_sha: record.mergeSha,
      error: record.error,
    };
  }

  #update(record: BranchRecord, change: Partial<Omit<BranchRecord, 'spec'>>, event?: string): BranchRecord {
    const { state, journal } = this.#parts;
    return journal.commit((emit) => {
      const updated = state.branches.update(record, change);
      if (event !== undefined)
        emit(event, updated.sandboxId, { branch: record.branch, ticket: record.ticket, pull: updated.pull });
      return updated;
    });
  }

  #again(record: BranchRecord): BranchRecord {
    return this.#parts.state.branches.find(record.repositoryId, record.branch) ?? record;
  }

  #find({ repository: ref, branch }: Query): { repository: RepositoryRecord; record: BranchRecord } {
    const repository = this.#repository(ref);
    const record = this.#parts.state.branches.find(repository.id, branch);
    if (record !== undefined) return { repository, record };
    throw new CoppiceError('not_found', `nobody started ${branch} of ${repository.name} here`, {
      hint: `Start it: coppice branch start ${repository.name} ${branch}`,
    });
  }

  #repository(ref: string): RepositoryRecord {
    const record = this.#parts.state.forge.repository(ref);
    if (record !== undefined) return record;
    throw new CoppiceError('not_found', `there is no repository ${ref}`, {
      hint: 'List them with `coppice forge ls`, or make one: coppice forge init NAME',
    });
  }
}

/** Forges that find out in the background whether it merges are asked until they know. */
async function settledPull(forge: Forge, number: number): Promise<Pull> {
  for (let n = 1; ; n += 1) {
    const pull = await forge.pull(number);
    if (pull.state !== 'open' || pull.mergeable !== null) return pull;
    if (n === mergeableTries)
      throw new CoppiceError('unavailable', `the forge does not say whether pull request ${number} merges`, {
        hint: 'Try again in a moment.',
      });
    await sleep(1000);
  }
}

function assertGood(checks: readonly Check[], reviews: readonly Review[], { branch }: BranchRecord): void {
  const bad = checks.filter(({ state }) => state !== 'success');
  if (bad.length > 0)
    throw new CoppiceError(
      'wrong_state',
      `${branch} is not merged: ${bad.map(({ name, state }) => `check ${name} is ${state}`).join(', ')}`,
      { hint: 'Wait for checks that are pending; mend what fails, and finish again.' },
    );
  const against = reviews.filter(({ state }) => state === 'changes_requested').map(({ author }) => author);
  if (against.length > 0)
    throw new CoppiceError(
      'wrong_state',
      `${branch} is not merged: ${against.join(', ')} asked for changes`,
      {
        hint: 'Make them, finish again, and ask for another review.',
      },
    );
}

const sumOfChecks = (checks: readonly Check[]): Branch['checks'] =>
  checks.length === 0
    ? 'none'
    : (['failure', 'pending', 'success'] as const).find((sum) => checks.some(({ state }) => state === sum))!;

const sumOfReviews = (reviews: readonly Review[]): Branch['reviews'] =>
  (['changes_requested', 'approved'] as const).find((sum) => reviews.some(({ state }) => state === sum)) ??
  'none';
