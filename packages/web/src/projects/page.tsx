import type { Experiment, ProductionAgent, Project, ProjectDetail } from '@coppice/protocol';
import { useSignal, useSignalEffect } from '@preact/signals';
import { client, noticeSignOut } from '../app/session.ts';
import { generation } from '../app/store.ts';
import { count, plain } from '../app/text.ts';
import { Age, Command, Failure } from '../app/ui.tsx';

const usd = (value: number): string => `${value < 0 ? '−' : ''}$${Math.abs(value).toFixed(2)}`;
const percent = (value: number): string => `${(value * 100).toFixed(0)} %`;
const hrefOf = (id: string): string => `/projects/${encodeURIComponent(id)}`;

/** The rate with its interval: how sure one can be is as much to be seen as the number. */
const Interval = ({ low, rate, high }: { low: number; rate: number; high: number }) => (
  <svg class="interval" viewBox="0 0 100 12" role="img" aria-label={`${percent(low)} to ${percent(high)}`}>
    <path d={`M0 6H100M${low * 100} 6H${high * 100}`} />
    <circle cx={rate * 100} cy="6" r="3" />
  </svg>
);

const Trial = ({ experiment }: { experiment: Experiment }) => (
  <section class="tab" aria-label={plain(experiment.name)}>
    <h2>{plain(experiment.name)}</h2>
    <p class="muted">{plain(experiment.hypothesis)}</p>
    <p>{plain(experiment.failure ?? experiment.said)}</p>
    {experiment.variants.length > 0 && (
      <table>
        <thead>
          <tr>
            <th>Variant</th>
            <th class="number">Cases</th>
            <th class="number">Passed</th>
            <th>Interval</th>
            <th class="number">Cost</th>
            <th>Against the baseline</th>
          </tr>
        </thead>
        <tbody>
          {experiment.variants.map((variant) => (
            <tr key={variant.name} class={variant.name === experiment.winner ? 'selected' : ''}>
              <td>{plain(variant.name)}</td>
              <td class="number">{variant.n}</td>
              <td class="number">{percent(variant.rate)}</td>
              <td>
                <Interval low={variant.low} rate={variant.rate} high={variant.high} />
              </td>
              <td class="number">{usd(variant.cost_usd)}</td>
              <td>
                {variant.gate === null
                  ? 'baseline'
                  : variant.gate.verdict === 'inconclusive'
                    ? `not enough data yet${variant.gate.needs_more === null ? '' : `, about ${count(variant.gate.needs_more, 'case')} more`}`
                    : plain(variant.gate.said)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    )}
  </section>
);

/** Asks again whenever something has happened. */
const useAnswer = <T,>(question: () => Promise<T>) => {
  const answer = useSignal<T | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  useSignalEffect(() => {
    void generation.value;
    question().then(
      (found) => {
        answer.value = found;
        failure.value = undefined;
      },
      (error: unknown) => {
        noticeSignOut(error);
        failure.value = error;
      },
    );
  });
  return { answer: answer.value, failure: failure.value };
};

const One = ({ of }: { of: string }) => {
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
                  <th>Type</th>
                  <th>Status</th>
                  <th class="number">Runs</th>
                  <th class="number">Failed</th>
                  <th class="number">Cost</th>
                  <th class="number">Revenue</th>
                  <th>Last run</th>
                </tr>
              </thead>
              <tbody>
                {project.agents.map((agent) => (
                  <tr key={agent.id}>
                    <td>{plain(agent.name)}</td>
                    <td class="muted">{plain(agent.type)}</td>
                    <td>{agent.status}</td>
                    <td class="number">{agent.metrics.runs}</td>
                    <td class="number">{agent.metrics.failed_runs}</td>
                    <td class="number">{usd(agent.metrics.cost_usd)}</td>
                    <td class="number">{usd(agent.metrics.revenue_usd)}</td>
                    <td class="cut">{plain(agent.last_run?.summary ?? '')}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
          {answer?.experiments.map((experiment) => (
            <Trial key={experiment.id} experiment={experiment} />
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
              <th class="number">Agents</th>
              <th class="number">Runs</th>
              <th class="number">Failed</th>
              <th class="number">Cost</th>
              <th class="number">Revenue</th>
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
                <td class="number">{metrics.agents}</td>
                <td class="number">{metrics.runs}</td>
                <td class="number">{metrics.failed_runs}</td>
                <td class="number">{usd(metrics.cost_usd)}</td>
                <td class="number">{usd(metrics.revenue_usd)}</td>
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
                <th class="number">Runs</th>
                <th class="number">Failed</th>
                <th class="number">Failed before</th>
                <th>Rolled back because</th>
              </tr>
            </thead>
            <tbody>
              {answer.production.map((agent) => (
                <tr key={agent.id}>
                  <td>{plain(agent.name)}</td>
                  <td>{agent.stage}</td>
                  <td class="number">{agent.runs}</td>
                  <td class="number">{agent.failed_runs}</td>
                  <td class="number">{percent(agent.baseline_failures)}</td>
                  <td>{plain(agent.rollback?.reason ?? '')}</td>
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
