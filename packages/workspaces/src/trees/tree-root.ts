import { CoppiceError } from '@coppice/protocol/errors';

export interface NodeLocation {
  readonly pack: string;
  readonly offset: number;
  readonly length: number;
}

/** Names a stored tree, and says where its top node lies: `hash:pack:offset:length`. */
export interface TreeRoot extends NodeLocation {
  readonly hash: string;
}

export const parseTreeRoot = (text: string): TreeRoot => {
  const [, hash, pack, offset, length] = /^([0-9a-f]{64}):([0-9a-f]{16}):(\d+):(\d+)$/.exec(text) ?? [];
  if (!hash || !pack) throw new CoppiceError('corrupt', `not the root of a tree: ${text}`);
  return { hash, pack, offset: Number(offset), length: Number(length) };
};
