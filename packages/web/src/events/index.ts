import type { Feature } from '../app/feature.ts';

export const events: Feature = {
  name: 'events',
  title: 'Events',
  path: '/events',
  isInNavigation: true,
  isForProjects: true,
  isForOneSandbox: false,
  load: () => import('./page.tsx'),
};
