import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { AgentType } from './agent-type.ts';
import contentCreator from './files/content_creator.json' with { type: 'json' };
import ddsProspecting from './files/dds_prospecting.json' with { type: 'json' };
import scripted from './files/scripted.json' with { type: 'json' };
import seoOptimizer from './files/seo_optimizer.json' with { type: 'json' };
import systemMonitor from './files/system_monitor.json' with { type: 'json' };
import trendMonitor from './files/trend_monitor.json' with { type: 'json' };

const shipped = [ddsProspecting, contentCreator, trendMonitor, seoOptimizer, systemMonitor, scripted];

/** The types that ship, and those in a directory of the operator, which come first and are read when they are asked for. */
export class AgentTypes {
  readonly #directory: string;
  readonly #shipped = shipped.map((file) => AgentType.read(file, `${file.name}.json`));

  constructor(directory: string) {
    this.#directory = directory;
  }

  list(): AgentType[] {
    const own = existsSync(this.#directory)
      ? readdirSync(this.#directory)
          .filter((name) => name.endsWith('.json'))
          .sort()
          .map((name) => this.#read(name))
      : [];
    const names = new Set(own.map(({ file }) => file.name));
    return [...own, ...this.#shipped.filter(({ file }) => !names.has(file.name))];
  }

  get(name: string): AgentType {
    const found = this.list().find(({ file }) => file.name === name);
    if (found !== undefined) return found;
    throw new CoppiceError('not_found', `there is no agent type ${name}`, {
      hint: `There are: ${this.list()
        .map(({ file }) => file.name)
        .join(', ')}. Your own go into ${this.#directory} as ${name}.json.`,
    });
  }

  #read(name: string): AgentType {
    const where = join(this.#directory, name);
    try {
      return AgentType.read(JSON.parse(readFileSync(where, 'utf8')), where);
    } catch (cause) {
      if (cause instanceof CoppiceError) throw cause;
      throw new CoppiceError('invalid_argument', `${where} is no JSON: ${(cause as Error).message}`, {
        hint: 'Correct the file, or remove it.',
        cause,
      });
    }
  }
}
