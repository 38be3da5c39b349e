import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { ContainerDriver } from '@coppice/runtime';

const criuProgram = fileURLToPath(new URL('../../.tools/criu/criu', import.meta.url));
const built = (name: string) => fileURLToPath(new URL(`../../native/build/${name}`, import.meta.url));

/** Why containers cannot keep their memory here; undefined where they can. */
export const whyNoCriu = existsSync(criuProgram) ? undefined : 'no CRIU 4 here';

export const makeWithCriu = (home: string, homeKey: string): ContainerDriver =>
  new ContainerDriver({
    home,
    homeKey,
    programs: { launch: built('coppice-launch'), agent: built('coppice-agent') },
    criuProgram,
  });
