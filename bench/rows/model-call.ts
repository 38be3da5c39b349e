import { Contender } from '../gateway/contender.ts';
import { defineRow } from '../harness/row.ts';
import { atMost } from '../harness/target.ts';

export const modelCall = defineRow({
  name: 'model-call',
  title: 'what the gateway adds to the first byte of a model, and 1,000 idle streams',
  targets: { 'what Portkey adds': atMost(0.3), 'memory of Portkey for 1,000 idle streams': atMost(1) },
  run: async (context) => {
    const open = async (opening: Promise<Contender>): Promise<Contender> => {
      const contender = await opening;
      context.atEnd(() => contender[Symbol.asyncDispose]());
      return contender;
    };
    const upstream = await open(Contender.upstream());
    const ours = await open(Contender.ours(upstream));
    const portkey = await open(Contender.portkey(upstream));
    const all = [upstream, ours, portkey];
    // The first ones are not compiled yet.
    for (let call = context.amount(100, 1); call > 0; call -= 1)
      for (const each of all) await each.firstByteMs();
    const measured = await context.interleave(
      {
        direct: () => upstream.firstByteMs(),
        ours: () => ours.firstByteMs(),
        portkey: () => portkey.firstByteMs(),
      },
      { rounds: 600, budgetS: 60 },
    );
    const streams = context.amount(1_000, 10);
    const memory = {
      ours: await ours.idleStreamsMiB(streams),
      portkey: await portkey.idleStreamsMiB(streams),
    };
    const added = (of: 'ours' | 'portkey'): number => measured[of].median - measured.direct.median;
    const { ours: own, portkey: peer } = measured;
    return {
      'what Portkey adds': { value: added('ours') / added('portkey'), ours: own, peer },
      'memory of Portkey for 1,000 idle streams': { value: memory.ours / memory.portkey },
    };
  },
});
