/** The direction of dependencies. Each rule says why it is there; `npm run checks` enforces them. */
const inside = (...packages) => `^packages/(${packages.join('|')})/`;

module.exports = {
  forbidden: [
    {
      name: 'no-cycles',
      comment:
        'Two files that need each other are one concept in two places: neither can be read, tested or moved alone.',
      severity: 'error',
      from: {},
      // A command that is loaded when it is asked for may look at the list that it is loaded from.
      to: { circular: true, viaOnly: { dependencyTypesNot: ['dynamic-import'] } },
    },
    {
      name: 'protocol-imports-nothing-of-ours',
      comment:
        'The contract is what everybody shares. If it knew one side, the other side would depend on it too.',
      severity: 'error',
      from: { path: inside('protocol') },
      to: {
        path: inside(
          'console',
          'disks',
          'workspaces',
          'runtime',
          'gateway',
          'projects',
          'agents',
          'daemon',
          'sdk',
          'cli',
          'testkit',
        ),
      },
    },
    {
      name: 'agents-know-only-the-protocol',
      comment:
        'An adapter turns lines into events and back. What could reach a sandbox, a database or a socket could not be replayed.',
      severity: 'error',
      from: { path: inside('agents') },
      to: { path: inside('disks', 'workspaces', 'runtime', 'gateway', 'projects', 'daemon', 'sdk', 'cli') },
    },
    {
      name: 'disks-and-runtime-do-not-know-each-other',
      comment:
        'Machines run on any disk, and disks are versioned without machines. Services of the daemon join them.',
      severity: 'error',
      from: { path: inside('disks', 'runtime') },
      to: {
        path: inside('disks', 'workspaces', 'runtime', 'daemon', 'sdk', 'cli'),
        pathNot: '^packages/$1/',
      },
    },
    {
      name: 'workspaces-ship-alone',
      comment:
        '`jvs` needs neither a daemon nor a sandbox: its package holds all of it, its command line included.',
      severity: 'error',
      from: { path: inside('workspaces') },
      to: { path: inside('disks', 'runtime', 'gateway', 'daemon', 'sdk', 'cli') },
    },
    {
      name: 'the-console-knows-only-the-protocol',
      comment: 'Both command lines print with it, and one of them ships alone.',
      severity: 'error',
      from: { path: inside('console') },
      to: { path: inside('disks', 'workspaces', 'runtime', 'gateway', 'daemon', 'sdk', 'cli') },
    },
    {
      name: 'the-gateway-knows-only-the-protocol',
      comment:
        'It is a process of its own that holds keys and outlives the daemon: it shares no code with what sandboxes reach.',
      severity: 'error',
      from: { path: inside('gateway') },
      to: { path: inside('console', 'disks', 'workspaces', 'runtime', 'daemon', 'sdk', 'cli') },
    },
    {
      name: 'the-forge-knows-only-the-protocol',
      comment:
        'Repositories and pull requests are the same whoever works on them, in a sandbox or without one.',
      severity: 'error',
      from: { path: inside('forge') },
      to: {
        path: inside(
          'disks',
          'workspaces',
          'runtime',
          'gateway',
          'projects',
          'daemon',
          'sdk',
          'cli',
          'console',
        ),
      },
    },
    {
      name: 'projects-know-only-the-protocol',
      comment:
        'Statistics, evaluation and the databases of projects are plain computation: the daemon drives sandboxes with them.',
      severity: 'error',
      from: { path: inside('projects') },
      to: {
        path: inside('console', 'disks', 'workspaces', 'runtime', 'gateway', 'daemon', 'sdk', 'cli'),
      },
    },
    {
      name: 'clients-speak-only-the-protocol',
      comment:
        'The SDK and the CLI may run on another machine than the daemon: they reach it through the API and never through its code.',
      severity: 'error',
      from: { path: inside('sdk', 'cli') },
      to: { path: inside('daemon', 'runtime', 'gateway', 'projects') },
    },
    {
      name: 'sdk-is-small',
      comment: 'Whoever embeds the client gets the protocol and nothing else of ours.',
      severity: 'error',
      from: { path: inside('sdk') },
      to: { path: inside('console', 'disks', 'workspaces', 'cli', 'testkit') },
    },
    {
      name: 'the-page-uses-the-sdk',
      comment: 'It runs in a browser: what it can do, any other client of the API can do too.',
      severity: 'error',
      from: { path: inside('web') },
      to: {
        path: inside('disks', 'workspaces', 'runtime', 'gateway', 'projects', 'daemon', 'cli', 'testkit'),
      },
    },
    {
      name: 'commands-never-touch-disks',
      comment: 'Every other command goes through the daemon, which owns the disks and their locks.',
      severity: 'error',
      from: { path: inside('cli') },
      to: { path: inside('disks') },
    },
    {
      name: 'nobody-imports-a-program',
      comment: 'Daemon and CLI are programs: they are started, not imported.',
      severity: 'error',
      from: { path: '^packages/([^/]+)/' },
      to: { path: inside('daemon', 'cli'), pathNot: '^packages/$1/' },
    },
    {
      name: 'product-code-needs-no-test-code',
      comment: 'The testkit is for tests; what ships must not pull it in.',
      severity: 'error',
      from: { path: '^packages/[^/]+/src/', pathNot: inside('testkit') },
      to: { path: '(^packages/testkit/|^packages/[^/]+/test/|^node_modules/vitest/)' },
    },
    {
      name: 'drivers-do-not-know-each-other',
      comment: 'A driver can be added or removed alone; what two of them share is a module beside drivers/.',
      severity: 'error',
      from: { path: '^packages/runtime/src/drivers/([^/]+)/' },
      to: { path: '^packages/runtime/src/drivers/', pathNot: '^packages/runtime/src/drivers/$1/' },
    },
    {
      name: 'no-room-knows-the-doors',
      comment:
        'A service is the same whichever door a request came through, so only what opens the doors may name them.',
      severity: 'error',
      from: { path: '^packages/daemon/src/', pathNot: '^packages/daemon/src/(doors/|[^/]+\\.ts$)' },
      to: { path: '^packages/daemon/src/doors/' },
    },
    {
      name: 'doors-only-map',
      comment:
        'A capability that a door works out by itself is missing from every other door. Doors call services by their types; what they may run themselves is how texts are read, cut and masked.',
      severity: 'error',
      from: { path: '^packages/daemon/src/doors/' },
      to: {
        path: '^packages/daemon/src/[^/]+/',
        pathNot: [
          '^packages/daemon/src/(doors|redaction|text)/',
          '^packages/daemon/src/inside/(output-text|shell-command)\\.ts$',
          '^packages/daemon/src/sessions/sessions\\.ts$',
          '^packages/daemon/src/notes/confined-directory\\.ts$',
          '^packages/daemon/src/host/system-failure\\.ts$',
        ],
        dependencyTypesNot: ['type-only'],
      },
    },
    {
      name: 'packages-are-entered-by-the-front-door',
      comment:
        'What index.ts does not name is free to change. Tests of a package may look inside it; other packages may not.',
      severity: 'error',
      from: { path: '^packages/([^/]+)/' },
      to: {
        path: '^packages/[^/]+/src/',
        pathNot: [
          '^packages/$1/',
          '^packages/[^/]+/src/index\\.ts$',
          '^packages/workspaces/src/cli/run\\.ts$',
          '^packages/protocol/src/(errors|socket|path-glob|mount-text|template-files)\\.ts$',
        ],
      },
    },
    {
      name: 'imports-exist',
      comment: 'An import that cannot be resolved fails only when that line is reached.',
      severity: 'error',
      from: {},
      to: { couldNotResolve: true },
    },
    {
      name: 'dependencies-are-declared',
      comment: 'A package that is there only because another needs it vanishes without warning.',
      severity: 'error',
      from: { path: '^packages/[^/]+/src/' },
      to: { dependencyTypes: ['npm-no-pkg', 'npm-unknown', 'npm-dev'] },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    includeOnly: '^(packages|node_modules)/',
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    combinedDependencies: false,
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'node', 'default', 'types'],
      extensions: ['.ts', '.tsx', '.mjs', '.js', '.cjs', '.d.ts'],
    },
  },
};
