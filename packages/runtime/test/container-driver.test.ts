import { fileURLToPath } from 'node:url';
import { describeDriver } from '@coppice/testkit';
import { ContainerDriver } from '../src/index.ts';

const program = (name: string) => fileURLToPath(new URL(`../../../guest/build/${name}`, import.meta.url));

describeDriver(
  'container',
  (home, homeKey) =>
    new ContainerDriver({
      home,
      homeKey,
      programs: { launch: program('coppice-launch'), agent: program('coppice-agent') },
    }),
);
