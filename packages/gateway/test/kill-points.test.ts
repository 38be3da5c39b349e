import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import type { RequestListener } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { Budgets, Outbox, openLedgerFile } from '../src/index.ts';
import { close, listen, urlOf } from './running-gateway.ts';

const program = fileURLToPath(new URL('./killed-gateway.ts', import.meta.url));

interface Started {
  readonly child: ChildProcess;
  readonly url: string;
  readonly recovered: number;
}

/** Undefined where it died before it listened. */
async function start(file: string, upstream: string, step: string): Promise<Started | undefined> {
  const child = spawn(process.execPath, [program, file, upstream, step], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  for await (const line of createInterface({ input: child.stdout! })) {
    const said = JSON.parse(line) as { port: number; recovered: number };
    return { child, url: `http://127.0.0.1:${said.port}`, recovered: said.recovered };
  }
  return undefined;
}

const end = async (child: ChildProcess): Promise<void> => {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGKILL');
  await once(child, 'exit');
};

const sse = (data: unknown): string => `data: ${JSON.stringify(data)}\n\n`;
const first = sse({
  type: 'message_start',
  message: { model: 'm', usage: { input_tokens: 50, output_tokens: 1 } },
});
const last = sse({ type: 'message_delta', usage: { output_tokens: 30 } });

const rows = (file: string): Record<string, unknown>[] => {
  const database = openLedgerFile(file);
  try {
    return database
      .prepare('SELECT b.*, s.* FROM begun b LEFT JOIN settled s USING (id) ORDER BY b.id')
      .all() as Record<string, unknown>[];
  } finally {
    database.close();
  }
};

/** What the ledger has of the call after the next start, and whether the upstream got it. */
const known = { outcome: 'complete', estimated: 0, input: 50, output: 30 };
const lost = { outcome: 'lost', estimated: 1, output: 1000 };
const failed = { outcome: 'failed', estimated: 0, input: 0, output: 0 };

describe('a gateway that is killed', () => {
  test.each([
    ['before it is begun', 0, []],
    ['while it is begun', 0, []],
    ['after it is begun', 0, [lost]],
    ['when the upstream has it', 1, [lost]],
    ['in the middle of the answer', 1, [lost]],
    ['before it is settled', 1, [lost]],
    ['while it is settled', 1, [lost]],
    ['after it is settled', 1, [known]],
    ['while it is recovered', 1, [lost]],
    ['before it is tried again', 1, [failed]],
    ['when the upstream has its second try', 2, [failed, lost]],
  ] as const)('%s loses no call that was billed, and counts none twice', async (step, requests, expected) => {
    const directory = mkdtempSync(join(tmpdir(), 'coppice-killed-'));
    const file = join(directory, 'ledger.db');
    let arrived = 0;
    let killed: ChildProcess | undefined;
    const answer: RequestListener = (request, response) => {
      request.resume();
      arrived += 1;
      response.on('error', () => {});
      if (arrived === 1 && /tried again|second try/.test(step))
        return void response.writeHead(529, { 'retry-after': '0' }).end('{}');
      if (arrived === 2) killed!.kill('SIGKILL');
      if (step === 'when the upstream has it') killed!.kill('SIGKILL');
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(first);
      if (step === 'in the middle of the answer' || step === 'while it is recovered') {
        setTimeout(() => killed!.kill('SIGKILL'), 50);
        return;
      }
      response.end(last);
    };
    const upstream = await listen(answer);
    try {
      const one = (await start(file, urlOf(upstream), step))!;
      killed = one.child;
      const gone = once(one.child, 'exit');
      const body = '{"model":"m","max_tokens":1000,"stream":true,"messages":[]}';
      // It dies under its client, before or after the answer is whole.
      await fetch(`${one.url}/v1/messages`, { method: 'POST', body })
        .then((response) => response.text())
        .catch(() => {});
      await gone;
      expect(one.child.signalCode).toBe('SIGKILL');
      expect(arrived).toBe(requests);

      if (step === 'while it is recovered') {
        expect(await start(file, urlOf(upstream), step)).toBeUndefined();
        expect(rows(file)).toMatchObject([{ outcome: null }]);
      }
      const next = (await start(file, urlOf(upstream), 'none'))!;
      await end(next.child);
      expect(next.recovered).toBe(expected.filter((row) => row === lost).length);
      expect(rows(file)).toMatchObject(expected);

      // A third one finds nothing to do, and the budgets know what was spent and hold nothing.
      const third = (await start(file, urlOf(upstream), 'none'))!;
      await end(third.child);
      expect(third.recovered).toBe(0);
      const database = openLedgerFile(file);
      const calls = rows(file);
      // What the daemon hears is what the ledger has, each once.
      const { events } = new Outbox(database).page({ epoch: '', after: 0 }, 100);
      const told = events.map(({ event }) => event).filter(({ type }) => type !== 'model.first_byte');
      expect(told).toMatchObject(
        calls.flatMap(({ call, attempt, outcome }) => [
          { type: 'model.request', call, attempt, run: 'r' },
          { type: 'model.settled', call, attempt, run: 'r', outcome },
        ]),
      );
      const spent = calls.reduce((sum, { input, output }) => sum + Number(input) + Number(output), 0);
      expect(new Budgets(database).set({ scope: 'run', name: 'r', tokens: 10_000 })).toMatchObject({
        spentTokens: spent,
        heldTokens: 0,
        heldMicros: 0,
      });
      database.close();
    } finally {
      if (killed !== undefined) await end(killed);
      await close(upstream);
      rmSync(directory, { recursive: true, force: true });
    }
  });
});

test('the ledger refuses to be changed', () => {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-ledger-'));
  const database = openLedgerFile(join(directory, 'ledger.db'));
  try {
    database.exec(`
      INSERT INTO begun (call, attempt, at_ms, sandbox, dialect, model_asked, model, upstream, request_bytes,
        input_estimate, output_estimate, held_tokens, held_micros, price_version)
      VALUES ('c', 1, 0, 's', 'gemini', 'm', 'm', 'u', 1, 1, 1, 1, 1, 'none');
      INSERT INTO settled VALUES (1, 0, 'm', 1, 0, 0, 0, 1, 0, 'none', 1, 0, 1, 1, 200, 'complete')`);
    for (const sql of [
      'UPDATE settled SET cost_micros = 0',
      'DELETE FROM settled',
      "UPDATE begun SET sandbox = 'other'",
      'DELETE FROM begun',
      "REPLACE INTO settled VALUES (1, 0, 'm', 0, 0, 0, 0, 0, 0, 'none', 0, 0, 1, 1, 200, 'complete')",
    ])
      expect(() => database.exec(sql), sql).toThrow(/append-only/);
    expect(() =>
      database.exec(
        "INSERT INTO settled VALUES (1, 0, 'm', 0, 0, 0, 0, 0, 0, 'none', 0, 0, 1, 1, 200, 'complete')",
      ),
    ).toThrow(/UNIQUE/);
    expect(() =>
      database.exec(
        "INSERT INTO settled VALUES (2, 0, 'm', 0, 0, 0, 0, 0, 0, 'none', 0, 0, 1, 1, 200, 'complete')",
      ),
    ).toThrow(/FOREIGN/);
  } finally {
    database.close();
    rmSync(directory, { recursive: true, force: true });
  }
});
