/** Who calls. The gateway decides it by network address and the token of the run, never by what a request says. */
export interface Caller {
  readonly sandbox: string;
  readonly run?: string;
  readonly agent?: string;
  readonly project?: string;
}
