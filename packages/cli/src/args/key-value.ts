import { CoppiceError } from '@coppice/protocol/errors';

type Pairs = Readonly<Record<string, string>>;

/** Collects repeated `KEY=VALUE`. A bare `KEY` takes its value from the environment of the caller, as env does. */
export const collectEnv =
  (env: NodeJS.ProcessEnv) =>
  (text: string, before: Pairs = {}): Pairs => {
    const equals = text.indexOf('=');
    if (equals > 0) return { ...before, [text.slice(0, equals)]: text.slice(equals + 1) };
    const value = env[text];
    if (equals === 0 || value === undefined) {
      throw new CoppiceError('invalid_argument', `${JSON.stringify(text)} is not KEY=VALUE`, {
        hint: 'Give KEY=VALUE, or the name of a variable that is set here.',
      });
    }
    return { ...before, [text]: value };
  };

export const collectLabels = (text: string, before: Pairs = {}): Pairs => {
  const equals = text.indexOf('=');
  if (equals === 0) {
    throw new CoppiceError('invalid_argument', `${JSON.stringify(text)} is not KEY=VALUE or KEY`);
  }
  return equals < 0
    ? { ...before, [text]: '' }
    : { ...before, [text.slice(0, equals)]: text.slice(equals + 1) };
};

export const collect = (text: string, before: readonly string[] = []): readonly string[] => [...before, text];
