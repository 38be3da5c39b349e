import { CoppiceError } from '@coppice/protocol';
import { badLine, type Dockerfile, type Instruction, unsupportedLine } from './parse-dockerfile.ts';
import { expand, rawWords } from './words.ts';

export interface Stage {
  readonly index: number;
  /** In lower case, as stages are found by it in any. */
  readonly name: string | undefined;
  /** Of an image, or of a stage before this one. */
  readonly base: string;
  readonly from: Instruction;
  readonly instructions: readonly Instruction[];
}

export interface Stages {
  readonly escapeWith: string;
  readonly all: readonly Stage[];
  /** Those that the target needs, in order, and the target last. */
  readonly needed: readonly Stage[];
  /** What is declared before the first FROM: for that, and for stages that declare it again. */
  readonly globals: Readonly<Record<string, string | undefined>>;
}

/** Finds the stages, and which of them the target needs. Refuses what no stage could do. */
export function readStages(
  { instructions, escapeWith }: Dockerfile,
  given: { readonly args: Readonly<Record<string, string>>; readonly target?: string | undefined },
  platform: Readonly<Record<string, string>>,
): Stages {
  const globals: Record<string, string | undefined> = {};
  const all: { stage: Stage; body: Instruction[] }[] = [];
  for (const instruction of instructions) {
    const { keyword, line } = instruction;
    if (keyword === 'ONBUILD' || keyword === 'MAINTAINER')
      throw unsupportedLine(line, keyword, keyword === 'MAINTAINER' ? 'Use LABEL instead.' : undefined);
    if (keyword === 'FROM') {
      const body: Instruction[] = [];
      const variables = { ...platform, ...globals };
      all.push({ stage: readFrom(instruction, all.length, body, variables, platform, escapeWith), body });
    } else if (all.length > 0) all.at(-1)!.body.push(instruction);
    else if (keyword === 'ARG') {
      for (const word of rawWords(instruction.rest, escapeWith)) {
        const [name = '', ...value] = word.split('=');
        const preset = value.length === 0 ? undefined : expand(value.join('='), globals, escapeWith);
        globals[name] = given.args[name] ?? preset ?? platform[name];
      }
    } else throw badLine(line, `${keyword} stands before the first FROM`, 'Only ARG may stand there.');
  }
  if (all.length === 0) throw badLine(1, 'there is no FROM');
  const stages = all.map(({ stage }) => stage);
  const target = given.target === undefined ? stages.at(-1)! : findStage(stages, given.target);
  if (target === undefined)
    throw new CoppiceError('invalid_argument', `the Dockerfile has no stage ${given.target}`, {
      hint: `It has ${stages.map(({ name, index }) => name ?? String(index)).join(', ')}.`,
    });
  return { escapeWith, all: stages, needed: neededBy(target, stages), globals };
}

function readFrom(
  instruction: Instruction,
  index: number,
  body: Instruction[],
  variables: Readonly<Record<string, string | undefined>>,
  platform: Readonly<Record<string, string>>,
  escapeWith: string,
): Stage {
  const { flags, line, rest } = instruction;
  for (const { name, value } of flags) {
    const wanted = expand(value, variables, escapeWith);
    if (name !== 'platform') throw unsupportedLine(line, `FROM --${name}`);
    if (wanted !== '' && wanted !== platform.TARGETPLATFORM)
      throw unsupportedLine(line, `an image for ${wanted} on ${platform.TARGETPLATFORM}`);
  }
  const words = rawWords(rest, escapeWith).map((word) => expand(word, variables, escapeWith));
  const [base = '', as, name] = words;
  if (words.length !== 1 && !(words.length === 3 && as!.toLowerCase() === 'as'))
    throw badLine(line, 'FROM is written as FROM IMAGE or FROM IMAGE AS NAME');
  if (base === '')
    throw badLine(
      line,
      'the name of the image is empty',
      'A variable in it may have no value: give it with --build-arg.',
    );
  if (name !== undefined && !/^[A-Za-z][A-Za-z0-9_.-]{0,62}$/.test(name))
    throw badLine(line, `${JSON.stringify(name)} is no name for a stage`);
  return { index, name: name?.toLowerCase(), base, from: instruction, instructions: body };
}

/** By name, or by number. The last of that name counts. */
export const findStage = (stages: readonly Stage[], ref: string): Stage | undefined =>
  stages.findLast(({ name }) => name === ref.toLowerCase()) ??
  (/^\d{1,3}$/.test(ref) ? stages[Number(ref)] : undefined);

function neededBy(target: Stage, stages: readonly Stage[]): Stage[] {
  const needed = new Set<Stage>();
  const visit = (stage: Stage): void => {
    if (needed.has(stage)) return;
    needed.add(stage);
    const before = stages.slice(0, stage.index);
    const refs = [
      stages.slice(0, stage.index).some(({ name }) => name === stage.base.toLowerCase())
        ? stage.base
        : undefined,
      ...stage.instructions.flatMap(stageRefs),
    ];
    for (const ref of refs) {
      const found = ref === undefined ? undefined : findStage(before, ref);
      if (found !== undefined) visit(found);
    }
  };
  visit(target);
  return [...needed].sort((a, b) => a.index - b.index);
}

/** Where an instruction takes files from. */
const stageRefs = ({ flags }: Instruction): string[] =>
  flags.flatMap(({ name, value }) => {
    if (name === 'from') return [value];
    const from = name === 'mount' ? /(?:^|,)from=([^,]+)/.exec(value)?.[1] : undefined;
    return from === undefined ? [] : [from];
  });
