import type { ProductionAgent, Project } from '@coppice/protocol';
import { ask } from '../app/actions.tsx';
import { client, mayChange } from '../app/session.ts';
import { count, plain } from '../app/text.ts';
import { Age, Command, Failure } from '../app/ui.tsx';
import { createProject, hrefOf, rollBack } from './actions.ts';
import { One } from './one.tsx';
import { percent, usd, useAnswer } from './parts.ts';

const All = () => {
  const { answer, failure } = useAnswer(
    async (): Promise<{ projects: Project[]; production: ProductionAgent[] }> => {
      const [projects, production] = await Promise.all([
        client().projects.list(),
        client().production.list(),
      ]);
      return { projects, production };
    },
  );
  return (
    <>
      <div class="title">
        <h1>{answer === undefined ? 'Projects' : count(answer.projects.length, 'project')}</h1>
        {mayChange() && (
          <button type="button" class="primary" onClick={() => ask(createProject())}>
            New project
          </button>
        )}
      </div>
      <Failure error={failure} />
      {answer?.projects.length === 0 && (
        <section class="empty">
          <h2>No projects yet</h2>
          <p>A project tries agents, measures them, and promotes what is worth it.</p>
          <Command text={'coppice project create "My Experiment" --cap 20'} />
        </section>
      )}
      {answer !== undefined && answer.projects.length > 0 && (
        <table>
          <thead>
            <tr>
              <th>Project</th>
              <th>Status</th>
              <th class="number wide">Agents</th>
              <th class="number wide">Runs</th>
              <th class="number wide">Failed</th>
              <th class="number wide">Cost</th>
              <th class="number wide">Revenue</th>
              <th class="number">Profit</th>
              <th class="number">Age</th>
            </tr>
          </thead>
          <tbody>
            {answer.projects.map(({ id, name, status, forgotten, metrics, created_at }) => (
              <tr key={id}>
                <td>
                  <a href={hrefOf(id)}>{plain(name)}</a>
                </td>
                <td>{forgotten ? `${status}, forgotten` : status}</td>
                <td class="number wide">{metrics.agents}</td>
                <td class="number wide">{metrics.runs}</td>
                <td class="number wide">{metrics.failed_runs}</td>
                <td class="number wide">{usd(metrics.cost_usd)}</td>
                <td class="number wide">{usd(metrics.revenue_usd)}</td>
                <td class="number">{usd(metrics.profit_usd)}</td>
                <td class="number">
                  <Age at={created_at} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {answer !== undefined && answer.production.length > 0 && (
        <section class="tab" aria-label="Production">
          <h2>Production</h2>
          <table>
            <thead>
              <tr>
                <th>Agent</th>
                <th>Stage</th>
                <th class="number wide">Runs</th>
                <th class="number wide">Failed</th>
                <th class="number wide">Failed before</th>
                <th>Rolled back because</th>
                <th>
                  <span class="sr">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {answer.production.map((agent) => (
                <tr key={agent.id}>
                  <td>{plain(agent.name)}</td>
                  <td>{agent.stage}</td>
                  <td class="number wide">{agent.runs}</td>
                  <td class="number wide">{agent.failed_runs}</td>
                  <td class="number wide">{percent(agent.baseline_failures)}</td>
                  <td>{plain(agent.rollback?.reason ?? '')}</td>
                  <td class="actions">
                    {mayChange() && agent.stage !== 'rolled-back' && (
                      <button
                        type="button"
                        class="quiet small"
                        aria-label={`Roll back ${plain(agent.name)}`}
                        onClick={() => ask(rollBack(agent))}
                      >
                        Roll back
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </>
  );
};

export const Page = ({ argument }: { argument: string }) =>
  argument === '' ? <All /> : <One of={argument} />;
