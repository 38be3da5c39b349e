import { CoppiceError } from '@coppice/protocol';
import type { Descriptor, ImageIndex } from './image-manifest.ts';

export interface Platform {
  readonly architecture: string;
  readonly variant?: string;
}

const architectures: Readonly<Record<string, Platform>> = {
  x64: { architecture: 'amd64' },
  arm64: { architecture: 'arm64', variant: 'v8' },
  arm: { architecture: 'arm', variant: 'v7' },
  ia32: { architecture: '386' },
};

/** What this machine runs, in the words of registries. */
export const machinePlatform = (arch: string = process.arch): Platform =>
  architectures[arch] ?? { architecture: arch };

/** The image of an index that is made for the platform. */
export function choosePlatform(index: ImageIndex, wanted: Platform, name: string): Descriptor {
  const fitting = index.manifests.filter(
    ({ platform }) => platform?.os === 'linux' && platform.architecture === wanted.architecture,
  );
  const exact = fitting.find(({ platform }) => platform?.variant === wanted.variant);
  const found = exact ?? fitting.find(({ platform }) => platform?.variant === undefined) ?? fitting[0];
  if (found !== undefined) return found;
  const offered = index.manifests
    .filter(({ platform }) => platform !== undefined && platform.os !== 'unknown')
    .map(({ platform }) =>
      [platform!.os, platform!.architecture, platform!.variant].filter(Boolean).join('/'),
    );
  throw new CoppiceError('unsupported', `${name} is not made for linux/${wanted.architecture}`, {
    hint: `It is made for ${[...new Set(offered)].join(', ') || 'no platform that it names'}.`,
    details: { platforms: offered },
  });
}
