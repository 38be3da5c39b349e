import type { Feature } from '../app/feature.ts';

export const costs: Feature = {
  name: 'costs',
  title: 'Costs',
  path: '/costs',
  isInNavigation: true,
  isForProjects: true,
  isForOneSandbox: false,
  load: () => import('./page.tsx'),
};
