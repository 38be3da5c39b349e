import type { PoolCalls } from '../native/pool-server.ts';
import { bytesOfText, textOfBytes } from './path-text.ts';
import type { TreeNode } from './tree-view.ts';
import type { ExtendedAttribute, NodeAttributes } from './tree-writer.ts';

/** All that belongs to a thing in a tree besides its content. */
export const attributesOf = async (server: PoolCalls, node: TreeNode): Promise<NodeAttributes> => {
  const { mode, uid, gid, mtimeNs, attributesDigest } = node.entry;
  const fields =
    attributesDigest === '' ? [] : await server.call('attributes', node.layerDir, bytesOfText(node.path));
  const extended: ExtendedAttribute[] = [];
  for (let at = 0; at + 1 < fields.length; at += 2)
    extended.push({ name: textOfBytes(fields[at]!), value: fields[at + 1]! });
  return { mode, uid, gid, mtimeNs, extended };
};

/** Gives them to what stands there in a layer that nothing has mounted. */
export const setAttributes = async (
  server: PoolCalls,
  layerDir: string,
  path: string,
  attributes: NodeAttributes,
): Promise<void> => {
  const { mode, uid, gid, mtimeNs, extended } = attributes;
  const place = bytesOfText(path);
  await server.call(
    'set-attributes',
    layerDir,
    place,
    String(mode & 0o7777),
    String(uid),
    String(gid),
    String(mtimeNs),
  );
  for (const { name, value } of extended)
    await server.call('set-attribute', layerDir, place, bytesOfText(name), value.toString('hex'));
};
