export interface TextSides {
  /** null: it is not there. */
  readonly before: string | null;
  readonly after: string | null;
  readonly name: string;
}

/** Two hostile texts keep the search for the shortest difference busy for minutes. */
const searchMs = 3000;

/** A unified diff of two texts; undefined where they differ too much to find one. */
export const textPatch = async ({ before, after, name }: TextSides): Promise<string | undefined> => {
  const { createTwoFilesPatch } = await import('diff');
  const patch = createTwoFilesPatch(
    before === null ? '/dev/null' : `a/${name}`,
    after === null ? '/dev/null' : `b/${name}`,
    before ?? '',
    after ?? '',
    undefined,
    undefined,
    { context: 3, timeout: searchMs },
  ) as string | undefined;
  return patch?.replace(/^=+\n/, '');
};
