import type { Feature } from '../app/feature.ts';

export const projects: Feature = {
  name: 'projects',
  title: 'Projects',
  path: '/projects',
  isInNavigation: true,
  isForProjects: false,
  isForOneSandbox: false,
  load: () => import('./page.tsx'),
};
