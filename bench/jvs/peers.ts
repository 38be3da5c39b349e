/** One way to keep and bring back the state of a directory, as lines of shell run in that directory. */
export interface Peer {
  readonly name: string;
  /** The program that must be there. */
  readonly program: string;
  readonly env: Readonly<Record<string, string>>;
  /** Takes so long, each time, that it is measured once. */
  readonly slow?: true;
  /** Before the first measurement; not measured. */
  prepare(place: string): string;
  /** Before each `again`; not measured. */
  clear?(place: string): string;
  first(place: string): string;
  again(place: string): string;
  restore(place: string): string;
}

const quote = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** A git of its own settings only. It does not tidy up in the background, which would run into the next measurement. */
export const gitEnv = (settings: Readonly<Record<string, string>>): Record<string, string> => {
  const all = Object.entries({ 'gc.auto': '0', ...settings });
  return {
    GIT_AUTHOR_NAME: 'bench',
    GIT_AUTHOR_EMAIL: 'bench@localhost',
    GIT_COMMITTER_NAME: 'bench',
    GIT_COMMITTER_EMAIL: 'bench@localhost',
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_CONFIG_COUNT: String(all.length),
    ...Object.fromEntries(
      all.flatMap(([key, value], at) => [
        [`GIT_CONFIG_KEY_${at}`, key],
        [`GIT_CONFIG_VALUE_${at}`, value],
      ]),
    ),
  };
};

/** `place` is a fresh directory beside the payload, for what the peer keeps. */
export const peers: readonly Peer[] = [
  {
    name: 'jvs',
    program: 'jvs',
    env: {},
    prepare: () => 'true',
    first: () => 'jvs snapshot first',
    again: () => 'jvs snapshot again',
    restore: () => 'jvs restore HEAD',
  },
  {
    name: 'cp -a',
    program: 'cp',
    env: {},
    prepare: () => 'true',
    first: (place) => `cp -a . ${quote(place)}/first && sync`,
    clear: (place) => `rm -rf ${quote(place)}/again`,
    again: (place) => `cp -a . ${quote(place)}/again`,
    restore: (place) => `cp -a ${quote(place)}/again/. .`,
  },
  {
    name: 'rsync --link-dest',
    program: 'rsync',
    env: {},
    prepare: () => 'true',
    first: (place) => `rsync -a ./ ${quote(place)}/first/`,
    clear: (place) => `rm -rf ${quote(place)}/again`,
    again: (place) => `rsync -a --link-dest=${quote(place)}/first ./ ${quote(place)}/again/`,
    restore: (place) => `rsync -a --delete ${quote(place)}/again/ ./`,
  },
  {
    name: 'git',
    program: 'git',
    env: gitEnv({}),
    prepare: (place) => `git init -q --separate-git-dir=${quote(place)}/git .`,
    first: () => 'git add -A && git commit -q -m first',
    again: () => 'git add -A && git commit -q -m again',
    restore: () => 'git reset -q --hard && git clean -qfd',
  },
  {
    name: 'restic',
    program: 'restic',
    slow: true,
    env: { RESTIC_PASSWORD: 'bench' },
    prepare: (place) => `restic -q -r ${quote(place)}/restic init`,
    first: (place) => `restic -q -r ${quote(place)}/restic backup .`,
    again: (place) => `restic -q -r ${quote(place)}/restic backup .`,
    restore: (place) => `restic -q -r ${quote(place)}/restic restore latest --target /`,
  },
  {
    name: 'borg',
    program: 'borg',
    slow: true,
    env: { BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK: 'yes', BORG_RELOCATED_REPO_ACCESS_IS_OK: 'yes' },
    prepare: (place) => `borg init -e none ${quote(place)}/borg`,
    first: (place) => `borg create ${quote(place)}/borg::first .`,
    again: (place) => `borg create ${quote(place)}/borg::again-$(date +%s%N) .`,
    restore: (place) => `borg extract ${quote(place)}/borg::first`,
  },
];
