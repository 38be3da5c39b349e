import type { ComponentType } from 'preact';

/** A part of the page: one folder, loaded when it is looked at. */
export interface Feature {
  readonly name: string;
  readonly title: string;
  /** Its addresses are this one, and those below it with one argument. */
  readonly path: string;
  /** Whether it stands in the navigation. */
  readonly isInNavigation: boolean;
  /** Whether a token of a project may see it. */
  readonly isForProjects: boolean;
  /** Whether a token of one sandbox may see it. */
  readonly isForOneSandbox: boolean;
  readonly load: () => Promise<{ readonly Page: ComponentType<{ argument: string }> }>;
}
