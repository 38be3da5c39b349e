import { guestProgram, installedProgram } from '@coppice/testkit';
import { ContainerDriver } from '../../src/index.ts';

/** With the programs of this checkout. */
export const makeContainerDriver = (home: string, homeKey: string): ContainerDriver =>
  new ContainerDriver({
    home,
    homeKey,
    programs: { launch: guestProgram('coppice-launch'), agent: installedProgram('coppice-agent') },
  });
