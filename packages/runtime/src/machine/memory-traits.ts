/** What a memory image depends on. One line of text: program, its version, architecture, then each feature of the processor. */
export interface MemoryTraits {
  readonly program: string;
  readonly version: string;
  readonly architecture: string;
  readonly cpuFeatures: readonly string[];
}

export const formatMemoryTraits = (traits: MemoryTraits): string =>
  [traits.program, traits.version, traits.architecture, ...traits.cpuFeatures].join(' ');

export const parseMemoryTraits = (text: string): MemoryTraits => {
  const [program = '', version = '', architecture = '', ...cpuFeatures] = text.split(' ');
  return { program, version, architecture, cpuFeatures };
};

const namedFeatures = 5;

/**
 * Why memory that was kept elsewhere cannot go on here; undefined when it can. The same program must read it that wrote
 * it, and the processor must have whatever a process may have found and begun to use.
 */
export const memoryMisfit = (kept: string, here: string | null): string | undefined => {
  const then = parseMemoryTraits(kept);
  const wrote = `${then.program} ${then.version} on ${then.architecture}`;
  if (here === null) return `it was kept by ${wrote}, and this machine cannot keep memory`;
  const now = parseMemoryTraits(here);
  const reads = `${now.program} ${now.version} on ${now.architecture}`;
  if (wrote !== reads) return `it was kept by ${wrote}, and this machine has ${reads}`;
  const present = new Set(now.cpuFeatures);
  const missing = then.cpuFeatures.filter((feature) => !present.has(feature));
  if (missing.length === 0) return undefined;
  const others = missing.length - namedFeatures;
  const rest = others > 0 ? ` and ${others} more` : '';
  return `the processor of this machine lacks ${missing.slice(0, namedFeatures).join(', ')}${rest}`;
};
