import { join } from 'node:path';
import type { IdSource } from '@coppice/protocol';
import {
  CredentialSources,
  DockerConfigFile,
  defaultMaxBytes,
  defaultMaxEntries,
  ImageStore,
  LayeredImages,
  LoginFile,
  Registries,
} from '@coppice/runtime';
import type { Config } from '../config/config.ts';
import type { Home } from '../config/home.ts';
import type { Programs } from '../config/programs.ts';

/** Whom the daemon runs as: where its logins to registries are, and the programs that keep them. */
export interface Account {
  readonly home: string;
  readonly path: string;
  readonly dockerConfigDir: string;
}

export interface ImageParts {
  readonly home: Home;
  readonly config: Config;
  readonly programs: Programs;
  readonly account: Account;
  readonly ids: IdSource;
  readonly now: () => number;
}

export interface OpenedImages {
  readonly imageStore: ImageStore;
  readonly registries: Registries;
  readonly logins: LoginFile;
}

/** The images of a home, and the registries that they come from. */
export async function openImages(parts: ImageParts): Promise<OpenedImages> {
  const { home, config, programs, account, ids, now } = parts;
  const logins = new LoginFile(home.loginsFile);
  const docker = new DockerConfigFile({
    file: config.docker_config ?? join(account.dockerConfigDir, 'config.json'),
    env: { HOME: account.home, PATH: account.path },
  });
  const registries = new Registries({
    credentials: new CredentialSources([logins, docker]),
    settings: config.registries,
  });
  const layered = await LayeredImages.open({
    layersDir: home.layersDir,
    blobsDir: home.blobsDir,
    program: programs.layer,
    registries,
    limits: { maxBytes: defaultMaxBytes, maxEntries: defaultMaxEntries },
  });
  const imageStore = await ImageStore.open({
    directory: home.imagesDir,
    newId: () => ids.next('image'),
    now: () => new Date(now()),
    layered,
    pullMissing: config.pull_missing_images,
  });
  return { imageStore, registries, logins };
}
