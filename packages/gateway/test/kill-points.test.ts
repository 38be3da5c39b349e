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

describe('a gateway that is killed', () => {
  test.each([
    ['before it is begun', false, undefined],
    ['while it is begun', false, undefined],
    ['after it is begun', false, lost],
    ['when the upstream has it', true, lost],
    ['in the middle of the answer', true, lost],
    ['before it is settled', true, lost],
    ['while it is settled', true, lost],
    ['after it is settled', true, known],
    ['while it is recovered', true, lost],
  ] as const)('%s loses no call that was billed, and counts none twice', async (step, isBilled, expected) => {
    const directory = mkdtempSync(join(tmpdir(), 'coppice-killed-'));
    const file = join(directory, 'ledger.db');
    let billed = 0;
    let killed: ChildProcess | undefined;
    const answer: RequestListener = (request, response) => {
      request.resume();
      billed += 1;
      response.on('error', () => {});
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
      expect(billed).toBe(isBilled ? 1 : 0);

      if (step === 'while it is recovered') {
        expect(await start(file, urlOf(upstream), step)).toBeUndefined();
        expect(rows(file)).toMatchObject([{ outcome: null }]);
      }
      const next = (await start(file, urlOf(upstream), 'none'))!;
      await end(next.child);
      expect(next.recovered).toBe(expected === lost ? 1 : 0);
      expect(rows(file)).toMatchObject(expected === undefined ? [] : [expected]);

      // A third one finds nothing to do, and the budgets know what was spent and hold nothing.
      const third = (await start(file, urlOf(upstream), 'none'))!;
      await end(third.child);
      expect(third.recovered).toBe(0);
      const database = openLedgerFile(file);
      const [call] = rows(file);
      // What the daemon hears is what the ledger has, each once.
      const { events } = new Outbox(database).page({ epoch: '', after: 0 }, 100);
      const told = events.filter(({ event }) => event.type !== 'model.first_byte');
      expect(told.map(({ event }) => event)).toMatchObject(
        call === undefined
          ? []
          : [
              { type: 'model.request', call: call.call, run: 'r' },
              { type: 'model.settled', call: call.call, run: 'r', outcome: call.outcome },
            ],
      );
      const spent = call === undefined ? 0 : Number(call.input) + Number(call.output);
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
