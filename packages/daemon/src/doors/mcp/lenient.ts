/** The parts of a JSON schema that say what a value looks like. */
export interface Shape {
  readonly type?: string | readonly string[];
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly required?: readonly string[];
  readonly items?: Shape;
  readonly anyOf?: readonly Shape[];
  readonly additionalProperties?: Shape | boolean;
}

const typesOf = ({ type, anyOf }: Shape): readonly string[] => {
  if (anyOf !== undefined) return anyOf.flatMap(typesOf);
  return type === undefined ? [] : typeof type === 'string' ? [type] : type;
};

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
};

/** A text that stands for a value of another type, and could mean nothing else. */
const fromText = (text: string, types: readonly string[]): unknown => {
  const isNumeric = types.includes('number') || types.includes('integer');
  if (isNumeric && /^\s*-?\d{1,15}(\.\d{1,15})?\s*$/.test(text)) return Number(text);
  if (types.includes('boolean') && /^(true|false)$/i.test(text.trim()))
    return text.trim()[0]!.toLowerCase() === 't';
  if (types.includes('array')) {
    const list = parsed(text);
    return Array.isArray(list) ? list : [text];
  }
  if (types.includes('object')) {
    const record = parsed(text);
    if (isRecord(record)) return record;
  }
  return text;
};

/**
 * Arguments as they were meant: models write `"10"` for 10, `null` for what they leave out, and lists as text. Anything that
 * could be meant in two ways stays as it is, for the schema to refuse.
 */
export const asMeant = (shape: Shape, value: unknown): unknown => {
  const types = typesOf(shape);
  let given = value;
  if (typeof given === 'string' && types.length > 0 && !types.includes('string'))
    given = fromText(given, types);
  else if (
    typeof given === 'number' &&
    types.includes('string') &&
    !types.some((type) => /number|integer/.test(type))
  )
    given = String(given);
  if (Array.isArray(given)) {
    const { items } =
      shape.items === undefined ? (shape.anyOf?.find((one) => one.items !== undefined) ?? shape) : shape;
    return items === undefined ? given : given.map((item) => asMeant(items, item));
  }
  if (isRecord(given)) return recordAsMeant(shape, given);
  return given;
};

const recordAsMeant = (shape: Shape, given: Record<string, unknown>): Record<string, unknown> => {
  const { properties = {}, required = [], additionalProperties } = shape;
  const entries = Object.entries(given).flatMap(([key, value]): [string, unknown][] => {
    const known = Object.hasOwn(properties, key) ? properties[key] : undefined;
    const field = known ?? (typeof additionalProperties === 'object' ? additionalProperties : undefined);
    if (field === undefined) return [[key, value]];
    const isAbsent =
      value === null && known !== undefined && !required.includes(key) && !typesOf(field).includes('null');
    return isAbsent ? [] : [[key, asMeant(field, value)]];
  });
  return Object.fromEntries(entries);
};
