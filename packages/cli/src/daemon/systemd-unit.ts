export interface UnitParts {
  /** Node and the daemon's own program. */
  readonly program: readonly [string, string];
  readonly home: string;
}

/** As systemd reads it: % is a specifier, and spaces part words. */
const quoted = (word: string): string =>
  `"${word.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%')}"`;

/**
 * The daemon as a service of the machine. Only the daemon itself is ended with it: sandboxes, the gateway and their helpers outlive
 * a restart, and the next daemon finds them.
 */
export const systemdUnit = ({
  program,
  home,
}: UnitParts): string => `# Written by \`coppice service install\`; \`coppice service uninstall\` removes it.
[Unit]
Description=Coppice: sandboxes that can be branched (${home.replaceAll('%', '%%')})
After=network-online.target local-fs.target
Wants=network-online.target
RequiresMountsFor=${quoted(home)}

[Service]
Type=exec
ExecStart=${[...program, '--home', home, '--foreground'].map(quoted).join(' ')}
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
