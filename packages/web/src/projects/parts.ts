import { useSignal, useSignalEffect } from '@preact/signals';
import { noticeSignOut } from '../app/session.ts';
import { generation } from '../app/store.ts';

export const usd = (value: number): string => `${value < 0 ? '−' : ''}$${Math.abs(value).toFixed(2)}`;
export const percent = (value: number): string => `${(value * 100).toFixed(0)} %`;

/** Asks again whenever something has happened. */
export const useAnswer = <T>(question: () => Promise<T>) => {
  const answer = useSignal<T | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  useSignalEffect(() => {
    void generation.value;
    question().then(
      (found) => {
        answer.value = found;
        failure.value = undefined;
      },
      (error: unknown) => {
        noticeSignOut(error);
        failure.value = error;
      },
    );
  });
  return { answer: answer.value, failure: failure.value };
};
