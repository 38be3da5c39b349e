import type { Feature } from '../app/feature.ts';

export const lineage: Feature = {
  name: 'lineage',
  title: 'Lineage',
  path: '/lineage',
  isInNavigation: true,
  isForProjects: true,
  isForOneSandbox: false,
  load: () => import('./page.tsx'),
};
