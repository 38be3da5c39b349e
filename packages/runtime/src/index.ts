// Drivers
export {
  type Cover,
  type Driver,
  type DriverHealth,
  type Ending,
  endingOf,
  type GiveUp,
  type HostMount,
  type ImageRoot,
  LeftBehind,
  type Machine,
  type MachineLimits,
  type MachineSpec,
  type MachineUsage,
} from './driver.ts';
export { ContainerDriver, type ContainerDriverOptions } from './drivers/container/container-driver.ts';
// gVisor driver
export { GvisorDriver, type GvisorDriverOptions } from './drivers/gvisor/gvisor-driver.ts';
// Guest
export { connectGuest } from './guest/connect-guest.ts';
export { GatheredBytes } from './guest/gathered-bytes.ts';
export type {
  ByteStream,
  ExitStatus,
  FileKind,
  FileStat,
  ForkNotice,
  Guest,
  GuestProcess,
  GuestWatch,
  JobInfo,
  JobLog,
  ProcessRequest,
  PtyAttachment,
  PtyInfo,
  StreamedChunk,
  UnpackOptions,
  WatchEvent,
  WriteOptions,
} from './guest/guest.ts';
export { GuestClient } from './guest/guest-client.ts';
export { GuestLink, type GuestLinkOptions } from './guest/guest-link.ts';
export { atSocket } from './guest/socket-path.ts';
// Images
export { buildHostRootfs, hostRootfsVersion } from './images/host-rootfs.ts';
export type { BuildOptions, Image, ImageProgress, ImageSource } from './images/image.ts';
export { defaultMaxBytes, defaultMaxEntries, ImageStore } from './images/image-store.ts';
export { LayeredImages } from './images/layered-images.ts';
export type { ComposeInput, DocumentBytes, ForeignImage, LayeredStore } from './images/layered-store.ts';
export { unpackStream } from './images/layers/unpack-stream.ts';
export type { ConfigSection } from './images/oci/compose-image.ts';
export { CredentialSources } from './images/oci/credentials.ts';
export { DockerConfigFile } from './images/oci/docker-config-file.ts';
export { type ImageSettings, signalNumber } from './images/oci/image-settings.ts';
export { LoginFile } from './images/oci/login-file.ts';
export { machinePlatform } from './images/oci/platform.ts';
export type { ImageDocuments, LayerProgress } from './images/oci/pull-image.ts';
export type { PushProgress } from './images/oci/push-image.ts';
export { Registries } from './images/oci/registries.ts';
// Memory
export {
  formatMemoryTraits,
  type MemoryTraits,
  memoryMisfit,
  parseMemoryTraits,
} from './machine/memory-traits.ts';
// Network
export type {
  Attachment,
  NameDoors,
  NameGateway,
  NamePlace,
  Network,
  NetworkPolicy,
} from './network/network.ts';
export { NftNetwork, type NftNetworkOptions } from './network/nft-network.ts';
