import type { Feature } from '../app/feature.ts';

export const overview: Feature = {
  name: 'overview',
  title: 'Overview',
  path: '/',
  isInNavigation: true,
  isForProjects: true,
  isForOneSandbox: false,
  load: () => import('./page.tsx'),
};
