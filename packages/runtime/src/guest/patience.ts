/** How long the agent of a sandbox is waited for: it may be held, or no longer ours. */
export interface Patience {
  /** For the answer to what takes no time, and for any sign of life while something is asked of it. */
  readonly answerMs: number;
  /** For what walks over a tree and says nothing meanwhile. */
  readonly treeMs: number;
  /** For the next piece of what it sends or takes. */
  readonly stallMs: number;
  /** For the end of what it was to end by itself, after the time that it was given. */
  readonly marginMs: number;
}

export const patienceOf = (answerMs = 60_000): Patience => ({
  answerMs,
  treeMs: 15 * answerMs,
  stallMs: 2 * answerMs,
  marginMs: Math.min(answerMs, 10_000),
});

/** When a call is given up; what is left out does not end it. */
export interface CallDeadlines {
  /** From its beginning to its end. */
  readonly totalMs?: number;
  /** From its beginning to its first answer. */
  readonly replyMs?: number;
  /** From one piece to the next, while this side waits for the agent and not for somebody else. */
  readonly stallMs?: number;
  /** What did not happen in time, for people. */
  readonly what?: string;
}
