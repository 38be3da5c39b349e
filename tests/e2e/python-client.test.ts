import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { RunningDaemon } from '@coppice/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const checkout = join(import.meta.dirname, '../..');
const sources = join(checkout, 'clients/python');
const execute = promisify(execFile);
/** The machine's own, which has the packages of Debian; another may stand before it on the path. */
const python = '/usr/bin/python3';

/** The same in both: what the client can do, with `wait` before each call of the asynchronous one. */
const tour = (isAsync: boolean): string => {
  const text = `
import asyncio, json, sys, threading, time
from coppice import AsyncCoppice, Coppice, CoppiceError

async def main():
    said = {}
    async with AsyncCoppice(home=sys.argv[1]) as coppice:
        async with await coppice.create(name=sys.argv[2], memory_mb=64, labels={"made": "by python"}) as box:
            await box.files.write("/root/text", "Grüße")
            said["text"] = await box.files.read_text("/root/text")
            parts = [b"x" * 70000, b"y" * 5]
            said["wrote"] = (await box.files.write("/root/large", iter(parts)))["bytes"]
            said["large"] = (await box.files.read("/root/large"))[69998:].decode()
            said["listed"] = sorted(entry["name"] for entry in await box.files.list("/root"))
            await box.files.edit("/root/text", "Grüße", "Gruß")
            result = await box.exec(["cat", "/root/text"], timeout_ms=60000)
            said["exec"] = [result["exit_code"], result["stdout"]]
            seen = []
            async with box.exec_stream("echo out; echo err >&2; exit 4") as process:
                async for part in process:
                    seen.append([part.stream, part.text])
            said["stream"] = [sorted(seen), process.exit_code]
            async with box.exec_stream("echo begun; exec sleep 1000") as process:
                async for part in process:
                    break
            snapshot = await box.snapshot(name="base")
            forks = await snapshot.fork(count=2, name_prefix="twig-" + sys.argv[2])
            await forks[0].exec("echo changed > /root/text; echo new > /root/new")
            said["diff"] = (await box.diff(forks[0], path="/root"))["summary"]
            said["merged"] = (await box.merge(forks[0]))["applied"]
            said["after"] = await box.files.read_text("/root/text")
            await box.restore(snapshot)
            said["restored"] = await box.files.read_text("/root/text")
            said["snapshots"] = [one.name for one in await box.snapshots() if not one.info["automatic"]]
            for fork in forks:
                await fork.destroy()
            found = await coppice.sandboxes(label="made=by python", state="running")
            said["found"] = [one.id for one in found] == [box.id]
            errors = []
            for call in (lambda: box.files.read("/nowhere"), lambda: coppice.get("nobody"), lambda: coppice.create(memory_mb=1)):
                try:
                    await call()
                except CoppiceError as error:
                    errors.append([error.code, error.hint != "", error.status])
            said["errors"] = errors
            async for event in coppice.events(sandbox=box.id):
                said.setdefault("events", []).append(event["type"])
                if event["type"] == "sandbox.restored":
                    break
            exported = [part async for part in snapshot.export(image=False)]
            taken = await coppice.import_snapshot(iter(exported), name="again")
            said["imported"] = taken["name"]
            said["calls"] = (await coppice.calls.whoami())["role"]
    print(json.dumps(said))
`;
  if (isAsync) return `${text}\nasyncio.run(main())\n`;
  return `${text
    .replaceAll(/\basync (def|with|for)\b/g, '$1')
    .replaceAll('await ', '')
    .replaceAll('AsyncCoppice(', 'Coppice(')}\nmain()\n`;
};

describe('the Python client, installed from its wheel', () => {
  let directory: string;
  let site: string;
  let daemon: RunningDaemon;

  const run = async (program: string, ...args: string[]): Promise<string> => {
    const file = join(directory, 'program.py');
    await writeFile(file, program);
    const env = { PATH: process.env.PATH, PYTHONPATH: site, COPPICE_HOME: daemon.home };
    const { stdout } = await execute(python, ['-B', file, ...args], { env, cwd: directory });
    return stdout;
  };

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'coppice-python-'));
    site = join(directory, 'site');
    await execute(python, ['-B', join(sources, 'build_wheel.py'), directory]);
    const [wheel] = (await readdir(directory)).filter((name) => name.endsWith('.whl'));
    const install = ['-m', 'pip', 'install', '--no-index', '--no-deps', '--no-cache-dir', '--target', site];
    await execute(python, [...install, join(directory, wheel!)], {
      env: { ...process.env, HOME: directory },
    });
    daemon = await RunningDaemon.start();
  });
  afterAll(async () => {
    await daemon?.[Symbol.asyncDispose]();
    await rm(directory, { recursive: true, force: true });
  });

  test.each([
    ['waits for answers', false],
    ['uses asyncio', true],
  ])('does all that the guide shows, in a program that %s', async (_kind, isAsync) => {
    const said = JSON.parse(await run(tour(isAsync), daemon.home, isAsync ? 'async' : 'plain')) as object;
    expect(said).toEqual({
      text: 'Grüße',
      wrote: 70_005,
      large: 'xxyyyyy',
      listed: expect.arrayContaining(['large', 'text']),
      exec: [0, 'Gruß'],
      stream: [
        [
          ['stderr', 'err\n'],
          ['stdout', 'out\n'],
        ],
        4,
      ],
      diff: expect.objectContaining({ added: 1, modified: 1, removed: 0 }),
      merged: true,
      after: 'changed\n',
      restored: 'Gruß',
      snapshots: ['base'],
      found: true,
      errors: [
        ['not_found', true, 404],
        ['not_found', true, 404],
        ['invalid_argument', true, 400],
      ],
      events: expect.arrayContaining(['sandbox.created', 'sandbox.restored']),
      imported: 'again',
      calls: 'full',
    });
    expect(await daemon.client.sandboxes.list()).toEqual([]);
  });

  test('ends a command when the task that waits for it is cancelled', async () => {
    const program = `
import asyncio
from coppice import AsyncCoppice

async def main():
    coppice = AsyncCoppice()
    async with await coppice.create() as box:
        task = asyncio.create_task(box.exec("echo $$ > /root/pid; exec sleep 1000"))
        while (await box.exec("cat /root/pid"))["stdout"] == "":
            pass
        task.cancel()
        pid = (await box.exec("cat /root/pid"))["stdout"].strip()
        while (await box.exec(["kill", "-0", pid]))["exit_code"] == 0:
            pass
        print("ended")

asyncio.run(asyncio.wait_for(main(), 60))
`;
    expect(await run(program)).toBe('ended\n');
  });

  test('says how to reach a daemon where there is none', async () => {
    const program = `
from coppice import Coppice, CoppiceError
for given in ({"home": "/nowhere"}, {"url": "http://127.0.0.1:1", "token": "x"}):
    try:
        Coppice(**given).health()
    except CoppiceError as error:
        print(error.code, "coppice up" in error.hint)
`;
    expect(await run(program)).toBe('unavailable True\nunavailable True\n');
  });

  test('runs the example of its README as it is printed', async () => {
    const readme = await readFile(join(sources, 'README.md'), 'utf8');
    const [, example = ''] = /```python\n(.*?)```/s.exec(readme) ?? [];
    expect(await run(example)).toMatch(/^42\n.*stdout step 1\n.*not_found /s);
  });

  test('has types that a checker accepts, and that refuse what the API does not take', async () => {
    await writeFile(
      join(directory, 'typed.py'),
      `from coppice import AsyncCoppice, Coppice
with Coppice().create(memory_mb=64) as box:
    code: float | None = box.exec(["true"], timeout_ms=1000)["exit_code"]
    state: str = box.inspect()["state"]
    box.exec("true", timeout=3)
    box.create()
async def later() -> str:
    return (await (await AsyncCoppice().get("box")).exec("true"))["stdout"]
`,
    );
    await writeFile(
      join(directory, 'pyrightconfig.json'),
      JSON.stringify({ include: ['typed.py', 'site/coppice'], extraPaths: ['site'] }),
    );
    const pyright = join(checkout, 'node_modules/pyright/index.js');
    const { stdout } = await execute(process.execPath, [
      pyright,
      '-p',
      directory,
      '--pythonpath',
      python,
      '--outputjson',
    ]).catch((error: { stdout: string }) => error);
    const { generalDiagnostics } = JSON.parse(stdout) as {
      generalDiagnostics: { file: string; message: string; range: { start: { line: number } } }[];
    };
    const found = generalDiagnostics.map(({ file, range, message }) => [
      file,
      range.start.line + 1,
      message.split('\n')[0],
    ]);
    const typed = join(directory, 'typed.py');
    expect(found).toEqual([
      [typed, 5, expect.stringContaining('timeout')],
      [typed, 6, expect.stringContaining('create')],
    ]);
  });
});
