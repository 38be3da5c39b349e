import type { LayerStack } from './layer-stack.ts';

const readBytes = 1 << 20;
const highestId = 65_535;

/** The ids that the agent gives to processes of the image's user: numbers, or names of the image's own tables. Root where there are none. */
export function imageUser(stack: LayerStack, user: string): { uid: number; gid: number } {
  const [name = '', group] = user.split(':');
  const rows = (table: string): string[][] =>
    (stack.text(table, readBytes) ?? '').split('\n').map((line) => line.split(':'));
  const row = rows('etc/passwd').find(([account, , id]) => account === name || id === name);
  const uid = toId(row?.[2] ?? name);
  if (uid === undefined) return { uid: 0, gid: 0 };
  const named = group === undefined ? row?.[3] : rows('etc/group').find(([title]) => title === group)?.[2];
  return { uid, gid: toId(named ?? group ?? '') ?? 0 };
}

const toId = (text: string): number | undefined => {
  const id = /^\d{1,5}$/.test(text) ? Number(text) : undefined;
  return id !== undefined && id <= highestId ? id : undefined;
};
