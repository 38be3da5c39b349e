import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { ScriptPlayer } from './script-player.ts';

/** Scripts by their files, each read again when it has changed. */
export class Scripts {
  readonly #directory: string;
  readonly #players = new Map<string, { readonly version: string; readonly player: ScriptPlayer }>();

  /** Names of files are from this directory on. */
  constructor(directory: string) {
    this.#directory = directory;
  }

  of(name: string): ScriptPlayer {
    const file = resolve(this.#directory, name);
    const stat = statSync(file, { throwIfNoEntry: false });
    const version = stat === undefined ? '' : `${stat.ino} ${stat.mtimeMs} ${stat.size}`;
    const known = this.#players.get(file);
    if (known !== undefined && known.version === version) return known.player;
    const player = ScriptPlayer.read(file, name);
    this.#players.set(file, { version, player });
    return player;
  }
}
