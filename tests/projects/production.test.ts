import { execFile } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import type { ProductionAgent } from '@coppice/protocol';
import { eventually, RunningDaemon } from '@coppice/testkit';
import { SMTPServer } from 'smtp-server';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

interface Got {
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

let daemon: RunningDaemon;
const got: Got[] = [];
const receiver = createServer(async (request, response) => {
  let body = '';
  for await (const chunk of request.setEncoding('utf8')) body += chunk;
  got.push({ headers: request.headers, body });
  response.end();
});
let secret: string;

beforeAll(async () => {
  daemon = await RunningDaemon.start({ programs: ['date'] });
  receiver.listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/news`;
  secret = (await daemon.client.production.addNewsTarget({ url })).secret!;
});
afterAll(async () => {
  receiver.close();
  await daemon?.[Symbol.asyncDispose]();
});

const good = `printf '{"cost_usd":1,"revenue_usd":5}' > report.json`;

const earned = async (name: string, script = good): Promise<string> => {
  const { projects } = daemon.client;
  const { id } = await projects.create({ name });
  await projects.deploy(id, { type: 'scripted', name, config: { script } });
  await eventually('it has earned', async () => (await projects.get(id)).metrics.revenue_usd > 0);
  return id;
};

const agentOf = async (id: string): Promise<ProductionAgent> =>
  (await daemon.client.production.list()).find((agent) => agent.id === id)!;

/** Runs the lane and waits until all of it has ended. */
const turn = async (lane: string): Promise<void> => {
  const { production } = daemon.client;
  const sum = async () => (await production.list()).reduce((total, { runs }) => total + runs, 0);
  const before = await sum();
  const runs = await production.run(lane);
  await eventually('the runs of the lane end', async () => (await sum()) >= before + runs.length);
};

test('what was read is promoted once, with new ids, budgets of production and what was learnt; then it proves itself', async () => {
  const { projects, production } = daemon.client;
  const id = await earned('Mailer');
  await projects.note(id, { text: 'short subjects work' });
  const loser = await projects.deploy(id, {
    type: 'scripted',
    name: 'Loser',
    config: { script: `printf '{"cost_usd":1}' > report.json` },
  });
  await eventually('the loser has lost', async () => (await projects.get(id)).metrics.runs === 2);
  const stale = (await projects.evaluate(id)).digest;
  await projects.report(id, { name: 'revenue', value: 1, agent: 'Mailer' });
  await expect(projects.promote(id, stale)).rejects.toMatchObject({ code: 'conflict' });
  const { digest, promotable } = await projects.evaluate(id);
  expect(promotable.map(({ name }) => name)).toEqual(['Mailer']);
  const promotion = await projects.promote(id, digest);
  expect(promotion).toMatchObject({
    fresh: true,
    agents: [{ name: 'Mailer', stage: 'canary', token_budget: 1000, notes: ['short subjects work'] }],
  });
  const agent = promotion.agents[0]!;
  expect(agent.id).toMatch(/^scripted_[0-9a-f]{8}$/);
  expect(agent.snapshot).toMatch(/^sn_/);
  expect((await projects.promote(id, digest)).fresh).toBe(false);
  expect(await production.list()).toHaveLength(1);
  expect((await projects.get(id)).status).toBe('promoted');
  await expect(projects.run(id, loser.id)).rejects.toMatchObject({ code: 'wrong_state' });
  for (let round = 0; round < 3; round += 1) await turn(agent.id);
  expect(await agentOf(agent.id)).toMatchObject({ stage: 'live', runs: 3, failed_runs: 0, revenue_usd: 15 });
  // What is deleted of the project is nothing that production needs.
  await projects.kill(id, { delete: true });
  await turn('mailer');
  expect(await agentOf(agent.id)).toMatchObject({ stage: 'live', runs: 4, failed_runs: 0 });
});

test('a successor that fails runs beside, is rolled back by the guard at once, and is never tried again', async () => {
  const { production } = daemon.client;
  const live = (await production.list()).find(({ lane, stage }) => lane === 'mailer' && stage === 'live')!;
  const worse = await production.change(live.id, { config: { script: 'echo broken; exit 1' } });
  expect(worse).toMatchObject({ stage: 'shadow', lane: 'mailer' });
  for (let round = 0; round < 6 && (await agentOf(worse.id)).stage !== 'rolled-back'; round += 1)
    await turn('mailer');
  const ended = await agentOf(worse.id);
  expect(ended).toMatchObject({
    stage: 'rolled-back',
    status: 'killed',
    rollback: { by: 'guard', replaced_by: live.id },
  });
  expect(ended.rollback?.reason).toMatch(/^it fails more often than before: \d of \d runs failed/);
  expect(ended.rollback?.snapshot).toMatch(/^sn_/);
  expect((await daemon.client.snapshots.get(ended.rollback!.snapshot!)).id).toBe(ended.rollback?.snapshot);
  expect(await agentOf(live.id)).toMatchObject({ stage: 'live', failed_runs: 0 });
  await expect(production.rollBack(worse.id)).rejects.toMatchObject({ code: 'wrong_state' });
  await expect(production.change(worse.id, { status: 'active' })).rejects.toMatchObject({
    code: 'wrong_state',
  });
});

test('by hand the one before works again, and who runs beside earns nothing', async () => {
  const { production } = daemon.client;
  const live = (await production.list()).find(({ lane, stage }) => lane === 'mailer' && stage === 'live')!;
  const next = await production.change(live.id, {
    config: { script: `printf '{"revenue_usd":7}' > report.json` },
  });
  await turn('mailer');
  expect(await agentOf(next.id)).toMatchObject({ stage: 'canary', runs: 1, revenue_usd: 0 });
  for (let round = 0; round < 16 && (await agentOf(next.id)).stage !== 'live'; round += 1)
    await turn('mailer');
  expect(await agentOf(next.id)).toMatchObject({ stage: 'live', revenue_usd: 21 });
  expect(await production.rollBack('mailer', 'customers complain')).toMatchObject({
    id: next.id,
    rollback: { reason: 'customers complain', by: 'hand', replaced_by: live.id },
  });
  const before = (await agentOf(live.id)).runs;
  await turn('mailer');
  expect((await agentOf(live.id)).runs).toBe(before + 1);
});

test('what is not worth it is not promoted', async () => {
  const { projects } = daemon.client;
  const { id } = await projects.create({ name: 'Empty' });
  const { digest, recommendation } = await projects.evaluate(id);
  expect(recommendation).toBe('NOT_READY');
  await expect(projects.promote(id, digest)).rejects.toMatchObject({ code: 'wrong_state' });
});

test('what an experiment left open is not promoted either', async () => {
  const { projects } = daemon.client;
  const id = await earned('Undecided');
  const experiment = await projects.startExperiment(id, {
    name: 'too few',
    type: 'scripted',
    variants: [
      { name: 'base', config: { script: 'true' } },
      { name: 'ours', config: { script: good } },
    ],
  });
  await eventually('it is done', async () => (await projects.experiment(id, experiment.id)).state === 'done');
  const { promotable, experiments, digest } = await projects.evaluate(id);
  expect(experiments).toMatchObject([{ variant: 'ours', gate: { verdict: 'inconclusive' } }]);
  expect(promotable).toEqual([]);
  await expect(projects.promote(id, digest)).rejects.toMatchObject({ code: 'wrong_state' });
});

test('news are signed as Standard Webhooks has it, each once', async () => {
  await eventually('the news arrive', () =>
    ['agent.rolled_back', 'experiment.done'].every((type) => got.some(({ body }) => body.includes(type))),
  );
  for (const { headers, body } of got) {
    const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`;
    const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
    expect(headers['webhook-signature']).toBe(
      `v1,${createHmac('sha256', key).update(signed).digest('base64')}`,
    );
  }
  expect(new Set(got.map(({ headers }) => headers['webhook-id'])).size).toBe(got.length);
  const types = got.map(({ body }) => (JSON.parse(body) as { type: string }).type);
  expect(types).toEqual(
    expect.arrayContaining(['project.promoted', 'agent.live', 'agent.rolled_back', 'experiment.done']),
  );
});

test('a comparison says what is better, or that there is not enough data', async () => {
  const { projects } = daemon.client;
  const [a, b] = [await earned('First'), await earned('Second')];
  expect(await projects.compare(a, b)).toMatchObject({
    a: { id: a },
    b: { id: b },
    failures: { verdict: 'inconclusive', n: 1 },
    profit: { verdict: 'inconclusive' },
  });
});

test('a snapshot of a project brings rows, agents, workspace and what runs back; the ledger stays', async () => {
  const { projects } = daemon.client;
  const { id } = await projects.create({ name: 'Time machine' });
  const agent = await projects.deploy(id, {
    type: 'scripted',
    config: { script: 'if test -e half; then echo went on; exit 0; fi; touch half; sleep 300' },
  });
  await projects.note(id, { text: 'kept' });
  await eventually('it works', async () => {
    const [run] = await projects.runs(id);
    return (
      run?.state === 'running' &&
      (await daemon.client.sandboxes.at(run.sandbox!).exec('test -e /workspace/half')).exit_code === 0
    );
  });
  const { workspace } = await projects.get(id);
  mkdirSync(join(workspace, 'deep'));
  writeFileSync(join(workspace, 'deep', 'plan.txt'), 'as it was');
  const taken = await projects.snapshot(id, 'half way');
  expect(taken).toMatchObject({ agents: 1, sandboxes: 1 });
  await expect(projects.snapshot(id, 'half way')).rejects.toMatchObject({ code: 'name_taken' });
  rmSync(join(workspace, 'deep'), { recursive: true });
  writeFileSync(join(workspace, 'later.txt'), 'not yet there');
  await projects.report(id, { name: 'cost', value: 2 });
  await projects.report(id, { name: 'leads', value: 2 });
  await projects.changeAgent(id, agent.id, { status: 'killed' });
  await eventually('it is over', async () => (await projects.runs(id))[0]?.state === 'ended');
  const back = await projects.restore(id, taken.id);
  expect(back).toMatchObject({
    reported: [],
    notes: [{ text: 'kept' }],
    agents: [{ id: agent.id, status: 'active' }],
    metrics: { cost_usd: 2 },
  });
  expect(readFileSync(join(workspace, 'deep', 'plan.txt'), 'utf8')).toBe('as it was');
  expect(existsSync(join(workspace, 'later.txt'))).toBe(false);
  await eventually(
    'it goes on where it was',
    async () => (await projects.runs(id))[0]?.summary === 'went on',
  );
  await expect(projects.restore(id, 99_999)).rejects.toMatchObject({ code: 'not_found' });
});

test('a snapshot of a project holds all of its sandboxes at one instant', async () => {
  const { projects, snapshots, sandboxes } = daemon.client;
  const { id } = await projects.create({ name: 'One instant' });
  // Each writes the time that it sees, without a pause.
  const script = 'while :; do date +%s%N > now.new; mv now.new now; done';
  for (const name of ['one', 'two', 'three'])
    await projects.deploy(id, { type: 'scripted', name, config: { script } });
  const works = async () =>
    (await projects.runs(id)).filter(({ sandbox, state }) => state === 'running' && sandbox !== null);
  await eventually('all work', async () => {
    const working = await works();
    if (working.length < 3) return false;
    const looks = working.map(({ sandbox }) => sandboxes.at(sandbox!).exec('test -s /workspace/now'));
    return (await Promise.all(looks)).every(({ exit_code }) => exit_code === 0);
  });
  const ids = (await works()).map(({ sandbox }) => sandbox!);
  await projects.snapshot(id, 'now');
  const taken = (await snapshots.list()).filter(({ sandbox_id }) => ids.includes(sandbox_id));
  expect(taken).toHaveLength(3);
  const firstMs = Math.min(...taken.map(({ created_at }) => Date.parse(created_at)));
  const seen = await Promise.all(
    taken.map(async ({ id: snapshot }) => {
      const grown = await sandboxes.create({ from: snapshot });
      const { stdout } = await grown.exec('cat /workspace/now');
      await grown.destroy();
      return Number(BigInt(stdout.trim()) / 1_000_000n);
    }),
  );
  // All stood still before the first was copied: none holds a later time.
  expect(Math.max(...seen)).toBeLessThanOrEqual(firstMs);
  await projects.kill(id, { delete: true });
});

test('a project in which nothing happens is found, told of once, and forgotten no more when something does', async () => {
  await using own = await RunningDaemon.start({ config: { projects: { forgotten_after_s: 1 } } });
  const { projects, production } = own.client;
  const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/forgotten`;
  await production.addNewsTarget({ url });
  const { id } = await projects.create({ name: 'Left alone' });
  await eventually('it seems forgotten', async () => (await projects.summary()).forgotten.includes(id));
  expect(await projects.get(id)).toMatchObject({ forgotten: true, status: 'active' });
  const told = () => got.filter(({ body }) => body.includes('project.forgotten') && body.includes(id));
  await eventually('it is told', () => told().length > 0);
  await projects.report(id, { name: 'cost', value: 1 });
  expect((await projects.get(id)).forgotten).toBe(false);
  expect(told()).toHaveLength(1);
});

describe('news by mail', () => {
  const mails: string[] = [];
  let visits = 0;
  const mailServer = new SMTPServer({
    disabledCommands: ['AUTH', 'STARTTLS'],
    onClose() {
      visits += 1;
    },
    onData(stream, _session, done) {
      text(stream).then((mail) => {
        mails.push(mail);
        // The first is refused for now, as a server does that is busy.
        if (mails.length === 1) done(Object.assign(new Error('try again later'), { responseCode: 451 }));
        else done();
      }, done);
    },
  });
  beforeAll(async () => {
    mailServer.listen(0, '127.0.0.1');
    await once(mailServer.server, 'listening');
  });
  afterAll(() => new Promise<void>((resolve) => mailServer.close(resolve)));
  const settings = (tls: 'none' | 'starttls') => ({
    mail: {
      host: '127.0.0.1',
      port: (mailServer.server.address() as AddressInfo).port,
      tls,
      from: 'coppice@example.org',
    },
  });

  test('reach the server that is configured, again after it refused, and say what happened', async () => {
    await using own = await RunningDaemon.start({ config: settings('none') });
    const { projects, production } = own.client;
    const url = 'mailto:ops@example.org';
    expect(await production.addNewsTarget({ url })).toMatchObject({ url, secret: null });
    await expect(production.addNewsTarget({ url })).rejects.toMatchObject({ code: 'name_taken' });
    const { id } = await projects.create({ name: 'Short', time_limit_s: 1 });
    await eventually('the mail is taken', () => mails.length >= 2);
    const [first, second] = mails.map((mail) => mail.replaceAll('\r\n', '\n'));
    expect(second).toContain('From: coppice@example.org\nTo: ops@example.org\n');
    expect(second).toContain(`Subject: project.ended ${id}\n`);
    expect(second).toContain('because: its time was over');
    const idOf = (mail: string | undefined) => /^Message-ID: (.+)$/m.exec(mail ?? '')?.[1];
    expect(idOf(second)).toBe(idOf(first));
    expect(mails).toHaveLength(2);
  });

  test('never go in the clear unless that is asked for', async () => {
    const [before, seen] = [mails.length, visits];
    await using own = await RunningDaemon.start({ config: settings('starttls') });
    const { projects, production } = own.client;
    await production.addNewsTarget({ url: 'mailto:ops@example.org' });
    await projects.create({ name: 'Short', time_limit_s: 1 });
    await eventually('it was tried', () => visits > seen);
    expect(mails).toHaveLength(before);
  });

  describe.each(['starttls', 'implicit'] as const)('by %s', (tls) => {
    const taken: { readonly user: string | undefined; readonly secure: boolean; readonly mail: string }[] =
      [];
    const tried: string[] = [];
    let directory: string;
    let server: SMTPServer;
    beforeAll(async () => {
      directory = await mkdtemp(join(tmpdir(), 'coppice-mail-'));
      const request = [
        'req',
        '-x509',
        '-newkey',
        'rsa:2048',
        '-nodes',
        '-days',
        '2',
        '-subj',
        '/CN=localhost',
      ];
      const names = ['-addext', 'subjectAltName=IP:127.0.0.1'];
      const files = ['-keyout', join(directory, 'key.pem'), '-out', join(directory, 'ca.pem')];
      await promisify(execFile)('openssl', [...request, ...names, ...files]);
      writeFileSync(join(directory, 'password'), 'open sesame\n', { mode: 0o600 });
      server = new SMTPServer({
        secure: tls === 'implicit',
        key: readFileSync(join(directory, 'key.pem')),
        cert: readFileSync(join(directory, 'ca.pem')),
        onAuth({ username = '', password = '' }, _session, done) {
          tried.push(`${username} ${password}`);
          if (`${username} ${password}` === 'coppice open sesame') done(null, { user: username });
          else done(new Error('not you'));
        },
        onData(stream, { user, secure }, done) {
          text(stream).then((mail) => {
            taken.push({ user, secure, mail });
            done();
          }, done);
        },
      });
      // A client that does not trust the certificate goes away in the middle.
      server.on('error', () => {});
      server.listen(0, '127.0.0.1');
      await once(server.server, 'listening');
    });
    afterAll(async () => {
      await new Promise<void>((resolve) => server.close(resolve));
      rmSync(directory, { recursive: true });
    });
    const mail = () => ({
      ...settings('starttls').mail,
      port: (server.server.address() as AddressInfo).port,
      tls,
      user: 'coppice',
      password_file: join(directory, 'password'),
    });
    const sendTo = async (own: RunningDaemon): Promise<string> => {
      await own.client.production.addNewsTarget({ url: 'mailto:ops@example.org' });
      return (await own.client.projects.create({ name: 'Short', time_limit_s: 1 })).id;
    };

    test('they go with a login, encrypted, to a server of the authority that is named', async () => {
      await using own = await RunningDaemon.start({
        config: { mail: { ...mail(), ca_file: join(directory, 'ca.pem') } },
      });
      const id = await sendTo(own);
      await eventually('the mail is taken', () => taken.length === 1);
      expect(taken[0]).toMatchObject({ user: 'coppice', secure: true });
      expect(taken[0]!.mail).toContain(`Subject: project.ended ${id}`);
    });

    test('they do not go, nor does the password, to a server that nobody vouches for', async () => {
      const before = [taken.length, tried.length];
      const connections = new Promise((resolve) => server.server.once('connection', resolve));
      await using own = await RunningDaemon.start({ config: { mail: mail() } });
      await sendTo(own);
      await connections;
      await own.stop();
      expect([taken.length, tried.length]).toEqual(before);
    });
  });

  test.each([
    ['without a server', 'mailto:ops@example.org', 'unsupported'],
    ['to what is no address', 'mailto:ops', 'invalid_argument'],
    ['with a second header', 'mailto:ops@example.org%0ABcc:a@b.c', 'invalid_argument'],
    ['to a file', 'file:///etc/passwd', 'invalid_argument'],
  ])('are refused %s', async (_what, url, code) => {
    await expect(daemon.client.production.addNewsTarget({ url })).rejects.toMatchObject({ code });
  });
});
