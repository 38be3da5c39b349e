import { defaultProject } from '@coppice/protocol';

/** What a sandbox is called on the command line: with its project in front, unless that is the default one. */
export const referenceTo = ({
  project,
  name,
}: {
  readonly project: string;
  readonly name: string;
}): string => (project === defaultProject ? name : `${project}/${name}`);
