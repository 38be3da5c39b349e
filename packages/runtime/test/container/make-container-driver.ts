import { fileURLToPath } from 'node:url';
import { ContainerDriver } from '../../src/index.ts';

const program = (name: string) => fileURLToPath(new URL(`../../../../guest/build/${name}`, import.meta.url));

/** With the programs of this checkout. */
export const makeContainerDriver = (home: string, homeKey: string): ContainerDriver =>
  new ContainerDriver({
    home,
    homeKey,
    programs: { launch: program('coppice-launch'), agent: program('coppice-agent') },
  });
