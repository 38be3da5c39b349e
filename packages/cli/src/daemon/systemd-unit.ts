import { CoppiceError } from '@coppice/protocol/errors';

export interface UnitParts {
  /** Node and the daemon's own program. */
  readonly program: readonly [string, string];
  readonly home: string;
}

/** As systemd reads one word of any setting: `%` begins a specifier, and a backslash quotes what follows. */
const quoted = (word: string): string =>
  `"${word.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%')}"`;

/** As it reads an argument of a program, where `$` begins a variable too. In the program itself it does not. */
const argument = (word: string): string => quoted(word).replaceAll('$', () => '$$');

/** A line break would begin a setting of its own, and no setting takes other control characters as they are. */
const assertOneLine = (path: string): void => {
  if (/[\x00-\x1f\x7f]/.test(path))
    throw new CoppiceError(
      'invalid_argument',
      `${JSON.stringify(path)} holds a control character, which no unit of systemd can name`,
      { hint: 'Use a home without line breaks and other control characters in its path.' },
    );
};

/**
 * The daemon as a service of the machine. Only the daemon itself is ended with it: sandboxes, the gateway and their helpers outlive
 * a restart, and the next daemon finds them.
 */
export const systemdUnit = ({ program, home }: UnitParts): string => {
  const [node, daemon] = program;
  for (const path of [node, daemon, home]) assertOneLine(path);
  const command = [quoted(node), ...[daemon, '--home', home, '--foreground'].map(argument)].join(' ');
  return `# Written by \`coppice service install\`; \`coppice service uninstall\` removes it.
[Unit]
Description=Coppice: sandboxes that can be branched (${home.replaceAll('%', '%%')})
After=network-online.target local-fs.target
Wants=network-online.target
RequiresMountsFor=${quoted(home)}

[Service]
Type=exec
ExecStart=${command}
KillMode=process
Restart=on-failure
RestartSec=2
TimeoutStopSec=60
LimitNOFILE=1048576
TasksMax=infinity
Delegate=yes
OOMScoreAdjust=-500

[Install]
WantedBy=multi-user.target
`;
};
