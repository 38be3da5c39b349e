import type { Feature } from '../app/feature.ts';

export const runs: Feature = {
  name: 'runs',
  title: 'Runs',
  path: '/runs',
  isInNavigation: true,
  isForProjects: true,
  isForOneSandbox: false,
  load: () => import('./page.tsx'),
};
