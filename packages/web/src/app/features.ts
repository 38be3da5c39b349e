import type { ComponentType } from 'preact';
import { compare } from '../compare/index.ts';
import { costs } from '../costs/index.ts';
import { events } from '../events/index.ts';
import { lineage } from '../lineage/index.ts';
import { overview } from '../overview/index.ts';
import { projects } from '../projects/index.ts';
import { runs } from '../runs/index.ts';
import { sandbox } from '../sandbox/index.ts';
import type { Feature } from './feature.ts';
import { isAdmin, onlyRun, onlySandbox } from './session.ts';

/** Each is a folder of its own; nothing else knows what is in it. In the order of the navigation. */
export const features: readonly Feature[] = [
  overview,
  lineage,
  compare,
  runs,
  projects,
  events,
  costs,
  sandbox,
];

/** Those that the token behind the page may see. */
export const navigation = (): readonly Feature[] =>
  onlySandbox() === undefined && onlyRun() === undefined
    ? features.filter(({ isInNavigation, isForProjects }) => isInNavigation && (isForProjects || isAdmin()))
    : [];

export interface Found {
  readonly feature: Feature;
  readonly argument: string;
}

export const find = (path: string): Found | undefined => {
  for (const feature of features) {
    if (path === feature.path) return { feature, argument: '' };
    if (feature.path !== '/' && path.startsWith(`${feature.path}/`))
      return { feature, argument: decodeURIComponent(path.slice(feature.path.length + 1)) };
  }
  return undefined;
};

const loadedPages = new Map<string, ComponentType<{ argument: string }>>();

/** Its page, once it has been loaded. */
export const pageOf = ({ name }: Feature): ComponentType<{ argument: string }> | undefined =>
  loadedPages.get(name);

export const load = async (feature: Feature): Promise<void> => {
  if (!loadedPages.has(feature.name)) loadedPages.set(feature.name, (await feature.load()).Page);
};
