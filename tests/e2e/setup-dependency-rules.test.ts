import { execFile } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { expect, test } from 'vitest';

const repository = join(import.meta.dirname, '..', '..');

/** For each rule one import that breaks it: from a file, to a file. */
const violations: Readonly<Record<string, readonly [from: string, to: string]>> = {
  'no-cycles': ['disks/src/ring-a.ts', 'disks/src/ring-b.ts'],
  'protocol-imports-nothing-of-ours': ['protocol/src/a.ts', 'sdk/src/index.ts'],
  'disks-and-runtime-do-not-know-each-other': ['disks/src/b.ts', 'runtime/src/index.ts'],
  'workspaces-ship-alone': ['workspaces/src/b.ts', 'disks/src/index.ts'],
  'the-console-knows-only-the-protocol': ['console/src/b.ts', 'sdk/src/index.ts'],
  'the-gateway-knows-only-the-protocol': ['gateway/src/a.ts', 'runtime/src/index.ts'],
  'agents-know-only-the-protocol': ['agents/src/a.ts', 'runtime/src/index.ts'],
  'the-forge-knows-only-the-protocol': ['forge/src/a.ts', 'runtime/src/index.ts'],
  'projects-know-only-the-protocol': ['projects/src/a.ts', 'runtime/src/index.ts'],
  'clients-speak-only-the-protocol': ['cli/src/a.ts', 'runtime/src/index.ts'],
  'sdk-is-small': ['sdk/src/a.ts', 'disks/src/index.ts'],
  'commands-never-touch-disks': ['cli/src/b.ts', 'disks/src/index.ts'],
  'the-page-uses-the-sdk': ['web/src/a.ts', 'runtime/src/index.ts'],
  'nobody-imports-a-program': ['testkit/src/a.ts', 'daemon/src/index.ts'],
  'product-code-needs-no-test-code': ['daemon/src/a.ts', 'testkit/src/index.ts'],
  'drivers-do-not-know-each-other': ['runtime/src/drivers/one/a.ts', 'runtime/src/drivers/two/a.ts'],
  'no-room-knows-the-doors': ['daemon/src/sandboxes/a.ts', 'daemon/src/doors/a.ts'],
  'doors-only-map': ['daemon/src/doors/b.ts', 'daemon/src/git/git-service.ts'],
  'packages-are-entered-by-the-front-door': ['daemon/src/b.ts', 'disks/src/hidden.ts'],
};

/** These need broken package metadata rather than an import between our files. */
const notShownHere = ['imports-exist', 'dependencies-are-declared'];

const asRelative = (path: string): string => (path.startsWith('.') ? path : `./${path}`);

test('every rule about the direction of dependencies catches the import that it forbids', async () => {
  const tree = mkdtempSync(join(tmpdir(), 'coppice-rules-'));
  try {
    copyFileSync(join(repository, 'tsconfig.json'), join(tree, 'tsconfig.json'));
    const write = (file: string, content: string): void => {
      const path = join(tree, 'packages', file);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, content, { flag: 'a' });
    };
    for (const [from, to] of Object.values(violations)) {
      write(to, 'export const it = 1;\n');
      write(from, `import '${asRelative(relative(dirname(from), to))}';\n`);
    }
    write('disks/src/ring-b.ts', "import './ring-a.ts';\n");
    const output = await new Promise<string>((resolve) => {
      execFile(
        join(repository, 'node_modules', '.bin', 'depcruise'),
        ['--config', join(repository, '.dependency-cruiser.cjs'), '--output-type', 'json', 'packages'],
        { cwd: tree, maxBuffer: 64 * 1024 * 1024 },
        (_error, stdout) => resolve(stdout),
      );
    });
    const found = (
      JSON.parse(output) as { summary: { violations: { rule: { name: string }; from: string }[] } }
    ).summary.violations;
    for (const [rule, [from]] of Object.entries(violations)) {
      expect(found.map((violation) => `${violation.rule.name}: ${violation.from}`)).toContain(
        `${rule}: packages/${from}`,
      );
    }
    const rules = createRequire(import.meta.url)(join(repository, '.dependency-cruiser.cjs')) as {
      forbidden: { name: string; comment: string }[];
    };
    expect(rules.forbidden.map((rule) => rule.name).toSorted()).toEqual(
      [...Object.keys(violations), ...notShownHere].toSorted(),
    );
  } finally {
    rmSync(tree, { recursive: true, force: true });
  }
});
