import type { Experiment, ProjectDetail } from '@coppice/protocol';
import { ask } from '../app/actions.tsx';
import { client, mayChange } from '../app/session.ts';
import { count, plain } from '../app/text.ts';
import { Failure } from '../app/ui.tsx';
import { agentActions, deployAgent, killProject } from './actions.ts';
import { Evaluation } from './evaluation.tsx';
import { ExperimentTable } from './experiment.tsx';
import { usd, useAnswer } from './parts.ts';

const Actions = ({ project }: { project: ProjectDetail }) =>
  project.status === 'killed' ? null : (
    <>
      <button
        type="button"
        onClick={() =>
          void client()
            .projects.types()
            .then((types) => ask(deployAgent(project, types)))
        }
      >
        Deploy an agent
      </button>
      <button type="button" class="danger" onClick={() => ask(killProject(project))}>
        End
      </button>
    </>
  );

export const One = ({ of }: { of: string }) => {
  const { answer, failure } = useAnswer(
    async (): Promise<{ project: ProjectDetail; experiments: Experiment[] }> => {
      const project = await client().projects.get(of);
      const experiments = await Promise.all(
        project.experiments.map(({ id }) => client().projects.experiment(of, id)),
      );
      return { project, experiments };
    },
  );
  const project = answer?.project;
  return (
    <>
      <div class="title">
        <h1>{plain(project?.name ?? of)}</h1>
        <span class="muted">{project?.status}</span>
        {project !== undefined && mayChange() && <Actions project={project} />}
      </div>
      <Failure error={failure} />
      {project !== undefined && (
        <div class="tab">
          <p>{plain(project.description)}</p>
          {project.ended_because !== null && <p class="failure">{plain(project.ended_because)}</p>}
          <p>
            {usd(project.metrics.cost_usd)} spent{project.cap_usd !== null && ` of ${usd(project.cap_usd)}`},{' '}
            {usd(project.metrics.revenue_usd)} brought in, {count(project.metrics.runs, 'run')},{' '}
            {project.metrics.failed_runs} failed
          </p>
          {project.agents.length > 0 && (
            <table>
              <thead>
                <tr>
                  <th>Agent</th>
                  <th class="wide">Type</th>
                  <th>Status</th>
                  <th class="number wide">Runs</th>
                  <th class="number wide">Failed</th>
                  <th class="number wide">Cost</th>
                  <th class="number wide">Revenue</th>
                  <th class="wide">Last run</th>
                  <th>
                    <span class="sr">Actions</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {project.agents.map((agent) => (
                  <tr key={agent.id}>
                    <td>{plain(agent.name)}</td>
                    <td class="muted wide">{plain(agent.type)}</td>
                    <td>{agent.status}</td>
                    <td class="number wide">{agent.metrics.runs}</td>
                    <td class="number wide">{agent.metrics.failed_runs}</td>
                    <td class="number wide">{usd(agent.metrics.cost_usd)}</td>
                    <td class="number wide">{usd(agent.metrics.revenue_usd)}</td>
                    <td class="cut wide">{plain(agent.last_run?.summary ?? '')}</td>
                    <td class="actions">
                      {mayChange() &&
                        agentActions(project, agent).map(({ title, action }) => (
                          <button
                            type="button"
                            class="quiet small"
                            key={title}
                            aria-label={`${title} ${plain(agent.name)}`}
                            onClick={() => ask(action)}
                          >
                            {title}
                          </button>
                        ))}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
          <Evaluation project={project} />
          {answer?.experiments.map((experiment) => (
            <ExperimentTable key={experiment.id} experiment={experiment} />
          ))}
          {project.notes.map((note) => (
            <p key={note.at + note.text} class="muted">
              {plain(note.text)}
            </p>
          ))}
        </div>
      )}
    </>
  );
};
