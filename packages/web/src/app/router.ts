import { computed, signal } from '@preact/signals';

const here = signal(location.pathname + location.search);
addEventListener('popstate', () => {
  here.value = location.pathname + location.search;
});

export const path = computed(() => here.value.split('?')[0]!);
export const query = computed(() => new URLSearchParams(here.value.split('?')[1] ?? ''));

export const go = (href: string, { replace = false } = {}): void => {
  if (href === here.value) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', href);
  here.value = href;
  if (!replace) scrollTo(0, 0);
};

/** Changes parts of the query; an empty value removes one. What a page shows has an address, so that it can be sent. */
export const setQuery = (changes: Readonly<Record<string, string>>, { replace = true } = {}): void => {
  const next = new URLSearchParams(query.value);
  for (const [name, value] of Object.entries(changes)) {
    if (value === '') next.delete(name);
    else next.set(name, value);
  }
  const text = next.toString();
  go(path.value + (text === '' ? '' : `?${text}`), { replace });
};

/** Links of our own go through the router; those with a modifier, a target or another origin stay with the browser. */
document.addEventListener('click', (event) => {
  if (event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element).closest('a');
  if (link === null || link.target !== '' || link.origin !== location.origin || link.hasAttribute('download'))
    return;
  if (link.pathname.startsWith('/v1/') || link.pathname === '/docs') return;
  event.preventDefault();
  go(link.pathname + link.search);
});
