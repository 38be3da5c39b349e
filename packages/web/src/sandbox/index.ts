import type { Feature } from '../app/feature.ts';

export const sandbox: Feature = {
  name: 'sandbox',
  title: 'Sandbox',
  path: '/sandboxes',
  isInNavigation: false,
  isForProjects: true,
  isForOneSandbox: true,
  load: () => import('./page.tsx'),
};
