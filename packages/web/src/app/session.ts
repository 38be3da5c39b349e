import type { PageSession, Whoami } from '@coppice/protocol';
import { Coppice, CoppiceError } from '@coppice/sdk';
import { signal } from '@preact/signals';

/** Storage belongs to one port, a cookie to all of a host: the daemon wants both (see docs/page.md). */
const storedKey = 'coppice.key';

export type SignIn =
  | { readonly state: 'opening' }
  | { readonly state: 'out'; readonly reason: string }
  | { readonly state: 'in'; readonly client: Coppice; readonly caller: Whoami };

export const signIn = signal<SignIn>({ state: 'opening' });

const clientOf = (key: string): Coppice => new Coppice({ url: `${location.origin}/`, token: key });

/** Redeems the code of a link. It leaves the address before anything else happens. */
const redeem = async (code: string): Promise<string> => {
  history.replaceState(null, '', location.pathname + location.search);
  const answer = await fetch('/v1/page/session', {
    method: 'POST',
    headers: { authorization: `Coppice-Code ${code}` },
    cache: 'no-store',
  });
  if (!answer.ok) throw new CoppiceError('unauthenticated', 'This link has been used or is too old.');
  const { key } = (await answer.json()) as PageSession;
  localStorage.setItem(storedKey, key);
  return key;
};

export const open = async (): Promise<void> => {
  const code = /^#code=([\w-]+)$/.exec(location.hash)?.[1];
  try {
    const key = code === undefined ? localStorage.getItem(storedKey) : await redeem(code);
    if (key === null) {
      signIn.value = { state: 'out', reason: '' };
      return;
    }
    const client = clientOf(key);
    signIn.value = { state: 'in', client, caller: await client.whoami() };
  } catch (error) {
    const isOut = error instanceof CoppiceError && error.code === 'unauthenticated';
    signIn.value = {
      state: 'out',
      reason: isOut && code === undefined ? 'Your sign-in has ended.' : (error as Error).message,
    };
  }
};

export const leave = async (): Promise<void> => {
  const key = localStorage.getItem(storedKey);
  localStorage.removeItem(storedKey);
  signIn.value = { state: 'out', reason: 'You are signed out.' };
  if (key !== null)
    await fetch('/v1/page/session', { method: 'DELETE', headers: { authorization: `Bearer ${key}` } });
};

/** Called with every failure, as any call may be the one that finds the sign-in ended. */
export const noticeSignOut = (error: unknown): void => {
  if (error instanceof CoppiceError && error.code === 'unauthenticated')
    signIn.value = { state: 'out', reason: 'Your sign-in has ended.' };
};

export const client = (): Coppice => {
  if (signIn.value.state !== 'in') throw new Error('nobody is signed in');
  return signIn.value.client;
};

const scope = (): string => (signIn.value.state === 'in' ? signIn.value.caller.scope : '');

/** The sandbox that is all this page may see; undefined for one that sees more. */
export const onlySandbox = (): string | undefined => /^sandbox:(.+)$/.exec(scope())?.[1];

/** The run that is all this page may see. It looks only: the token is the agent's own. */
export const onlyRun = (): string | undefined => /^run:(.+)$/.exec(scope())?.[1];

/** Whether it sees everything; the page of one project or one sandbox shows what belongs to that. */
export const isAdmin = (): boolean => scope() === 'admin';

/** Whether it may do things, or only look. */
export const mayChange = (): boolean =>
  signIn.value.state === 'in' && signIn.value.caller.role === 'full' && onlyRun() === undefined;
