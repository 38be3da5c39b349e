/** Another screen, keys for cursor and keypad, the mouse and its ways to tell where it is, focus, and marks around what is pasted. */
const undone = new Set([
  '1',
  '47',
  '1047',
  '1049',
  '1000',
  '1002',
  '1003',
  '1004',
  '1005',
  '1006',
  '1015',
  '2004',
]);
const tailChars = 64;

/** What a program did to the terminal, so that it is as before where the program is left running: vim stays on a screen of its own. */
export class TerminalModes {
  readonly #on = new Set<string>();
  #tail = '';

  follow(data: Uint8Array): void {
    const text = this.#tail + Buffer.from(data).toString('latin1');
    for (const [, list, switched] of text.matchAll(/\x1b\[\?([\d;]{1,40})([hl])/g))
      for (const mode of list!.split(';')) {
        if (switched === 'h' && undone.has(mode)) this.#on.add(mode);
        else this.#on.delete(mode);
      }
    // A sequence may go on in what comes next; one that was whole says the same twice.
    this.#tail = text.slice(-tailChars);
  }

  /** What undoes it, with a cursor that shows and no colours; nothing where nothing was done. */
  undo(): string {
    if (this.#on.size === 0) return '';
    return `${[...this.#on].map((mode) => `\x1b[?${mode}l`).join('')}\x1b>\x1b[?25h\x1b[0m`;
  }
}
