import type { Feature } from '../app/feature.ts';

export const compare: Feature = {
  name: 'compare',
  title: 'Compare',
  path: '/compare',
  isInNavigation: true,
  isForProjects: true,
  isForOneSandbox: false,
  load: () => import('./page.tsx'),
};
