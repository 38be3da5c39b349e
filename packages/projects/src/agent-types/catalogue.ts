import { TemplateFiles } from '@coppice/protocol/template-files';
import { AgentType } from './agent-type.ts';
import contentCreator from './files/content_creator.json' with { type: 'json' };
import ddsProspecting from './files/dds_prospecting.json' with { type: 'json' };
import scripted from './files/scripted.json' with { type: 'json' };
import seoOptimizer from './files/seo_optimizer.json' with { type: 'json' };
import systemMonitor from './files/system_monitor.json' with { type: 'json' };
import trendMonitor from './files/trend_monitor.json' with { type: 'json' };

const shipped = [ddsProspecting, contentCreator, trendMonitor, seoOptimizer, systemMonitor, scripted];

/** The types that ship, and those in a directory of the operator. */
export class AgentTypes {
  readonly #files: TemplateFiles<AgentType>;

  constructor(directory: string) {
    this.#files = new TemplateFiles({
      directory,
      shipped: shipped.map((file) => AgentType.read(file, `${file.name}.json`)),
      read: AgentType.read,
      nameOf: ({ file }) => file.name,
      what: 'agent type',
    });
  }

  list(): AgentType[] {
    return this.#files.list();
  }

  get(name: string): AgentType {
    return this.#files.get(name);
  }
}
