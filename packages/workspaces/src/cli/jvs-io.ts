/** Where a command reads from and writes to; the process itself, or a test. */
export interface JvsIo {
  /** None when the current directory is gone. */
  readonly cwd: string | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: AsyncIterable<Buffer | string>;
  readonly stdout: { write(text: string | Buffer): unknown; readonly isTTY?: boolean };
  readonly stderr: { write(text: string): unknown };
}
