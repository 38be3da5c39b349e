export { type AdapterBench, describeAdapter, type PlayedAgent } from './agent-adapter-conformance.ts';
export { type AgentContents, agentImage, missingAgents } from './agent-image.ts';
export { type DiskStoreHarness, describeDiskStore } from './disk-store-conformance.ts';
export { type DriverTraits, describeDriver } from './driver-conformance.ts';
export {
  DriverWorkbench,
  eventually,
  imageRootOf,
  type MakeDriver,
  type RunResult,
  runIn,
  shellIn,
} from './driver-workbench.ts';
export { describeForge, type ForgeBench, type ForgeTraits } from './forge-conformance.ts';
export { guestProgram, installedProgram, whereMemoryIsFreed } from './guest-program.ts';
export { homeKey } from './home-key.ts';
export { HomeTraces } from './home-traces.ts';
export { describeWithMemory, type MemoryDriver } from './memory-drivers.ts';
export { mountAt } from './mount-at.ts';
export { canMount, type MountableKind, whereMounts, whyNotMountable } from './mountable.ts';
export { MountedFilesystem } from './mounted-filesystem.ts';
export {
  type LayerEntry,
  type LayoutImage,
  layerTar,
  sha256Of,
  skopeoCopy,
  writeOciLayout,
} from './oci-layout.ts';
export { fillWithOddities, treeListing } from './odd-tree.ts';
export { PlainDirectory } from './plain-directory.ts';
export { RunningDaemon, type RunningDaemonOptions } from './running-daemon.ts';
export { sharedHostRootfs } from './shared-host-image.ts';
export { skipFor } from './skip-for.ts';
export { SmallDisk } from './small-disk.ts';
export { registryLogin, registryRefusal, TestRegistry, type TestRegistryOptions } from './test-registry.ts';
export { tinyImage } from './tiny-image.ts';
