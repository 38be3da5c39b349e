import './app/style.css';
import { render } from 'preact';
import { open, signIn } from './app/session.ts';
import { App } from './app/shell.tsx';
import { start } from './app/store.ts';

const begin = async (): Promise<void> => {
  await open();
  if (signIn.value.state === 'in') await start();
};

render(<App />, document.getElementById('page')!);
// A second link that is followed in the same tab changes nothing but what stands behind the `#`.
addEventListener('hashchange', () => {
  if (location.hash.startsWith('#code=')) location.reload();
});
await begin();
