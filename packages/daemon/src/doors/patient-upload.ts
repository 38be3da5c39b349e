import type { Readable } from 'node:stream';
import { CoppiceError } from '@coppice/protocol';

/**
 * The bytes of an upload as they come. It may take as long as it makes progress; a sender who is waited for and sends nothing
 * for this long is taken for gone. Whoever stops reading leaves the rest alone, so that the caller can still be answered.
 */
export async function* patientUpload(source: Readable, stalledMs: number): AsyncGenerator<Uint8Array, void> {
  const iterator = source.iterator({ destroyOnReturn: false });
  try {
    for (;;) {
      const next = await inTime(iterator.next(), stalledMs);
      if (next.done) return;
      yield next.value as Uint8Array;
    }
  } finally {
    // Not waited for: what was asked for last may never come.
    iterator.return?.().catch(() => undefined);
  }
}

const inTime = async <T>(work: Promise<T>, timeoutMs: number): Promise<T> => {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    late.reject(
      new CoppiceError('timeout', `nothing of the upload arrived for ${timeoutMs / 1000} s`, {
        hint: 'Send it again. How long the daemon waits is `limits.stalled_sender_s` in config.json.',
      }),
    );
  }, timeoutMs);
  try {
    return await Promise.race([work, late.promise]);
  } finally {
    clearTimeout(timer);
  }
};
