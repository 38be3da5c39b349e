import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';

/** The native programs that stand beside this one. */
export interface Programs {
  readonly agent: string;
  readonly launch: string;
  readonly layer: string;
  readonly parcel: string;
  readonly pool: string;
  readonly relay: string;
  /** The CRIU that set-up brought, where it could. */
  readonly criu?: string;
}

/** The gateway's own program: beside the bundle of the daemon, or among the sources. */
export const gatewayProgram = import.meta.url.endsWith('.ts')
  ? join(import.meta.dirname, '../../../gateway/src/main.ts')
  : join(import.meta.dirname, 'gateway.mjs');

const criuBelow = (root: string): Pick<Programs, 'criu'> => {
  const criu = join(root, '.tools/criu/criu');
  return existsSync(criu) ? { criu } : {};
};

/** Found upwards from here, so that the bundle and the sources both find them. */
export function findPrograms(from: string): Programs {
  for (let directory = from; ; directory = dirname(directory)) {
    const build = join(directory, 'native', 'build');
    if (existsSync(join(build, 'coppice-agent')))
      return {
        agent: join(build, 'coppice-agent'),
        launch: join(build, 'coppice-launch'),
        layer: join(build, 'coppice-layer'),
        parcel: join(build, 'coppice-parcel'),
        pool: join(build, 'coppice-pool'),
        relay: join(build, 'coppice-relay'),
        ...criuBelow(directory),
      };
    if (directory === dirname(directory)) break;
  }
  throw new CoppiceError('unsupported', 'the C programs are not built', {
    hint: 'Run `make -C native`, or bin/coppice, which does all the set-up.',
  });
}
