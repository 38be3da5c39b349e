import type {
  Experiment,
  GateResult,
  ProductionAgent,
  Project,
  ProjectComparison,
  ProjectDetail,
  ProjectEvaluation,
  ProjectMetrics,
  ProjectSummary,
} from '@coppice/protocol';
import type { Output } from '../ui/output.ts';

const money = (dollars: number): string =>
  `${dollars < 0 ? '-' : ''}$${Math.abs(dollars) !== 0 && Math.abs(dollars) < 0.01 ? Math.abs(dollars).toFixed(6) : Math.abs(dollars).toFixed(2)}`;
const percent = (value: number): string => `${Number(value.toFixed(1))}%`;

const metricFacts = (metrics: ProjectMetrics): [string, string][] => [
  ['Cost', money(metrics.cost_usd)],
  ['Revenue', money(metrics.revenue_usd)],
  ['Profit', money(metrics.profit_usd)],
  ['ROI', percent(metrics.roi)],
  ['Agents', `${metrics.active_agents} active of ${metrics.agents}`],
  ['Runs', `${metrics.runs}, ${metrics.failed_runs} failed`],
];

export const projectTable = (out: Output, projects: readonly Project[]): string =>
  out.table(
    ['ID', 'NAME', 'STATUS', 'AGENTS', 'RUNS', 'COST', 'REVENUE', 'ROI'],
    projects.map(({ id, name, status, forgotten, metrics }) => [
      id,
      name,
      forgotten ? `${status}, forgotten?` : status,
      String(metrics.agents),
      String(metrics.runs),
      money(metrics.cost_usd),
      money(metrics.revenue_usd),
      percent(metrics.roi),
    ]),
    'No projects yet. Create one: coppice project create "My Experiment"',
  );

export const summaryText = (out: Output, summary: ProjectSummary): string =>
  out.facts([
    [
      'Projects',
      `${summary.projects} (${summary.active} active, ${summary.promoted} promoted, ${summary.killed} killed)`,
    ],
    ['Agents', String(summary.agents)],
    ['Cost', money(summary.cost_usd)],
    ['Revenue', money(summary.revenue_usd)],
    ['Profit', money(summary.profit_usd)],
    ['ROI', percent(summary.roi)],
    ...(summary.forgotten.length === 0
      ? []
      : [['Forgotten?', summary.forgotten.join(', ')] as [string, string]]),
  ]);

export const detailText = (out: Output, project: ProjectDetail): string => {
  const agents = out.table(
    ['AGENT', 'NAME', 'TYPE', 'STATUS', 'COST', 'REVENUE', 'ROI', 'LAST RUN'],
    project.agents.map(({ id, name, type, status, metrics, last_run }) => [
      id,
      name,
      type,
      status,
      money(metrics.cost_usd),
      money(metrics.revenue_usd),
      percent(metrics.roi),
      last_run === null
        ? '-'
        : last_run.exit === null
          ? last_run.state
          : last_run.exit === 'ok'
            ? 'ok'
            : `${last_run.exit}: ${last_run.summary.slice(0, 80)}`,
    ]),
    'No agents yet.',
  );
  return [
    out.facts([
      ['Project', `${project.name} (${project.id})`],
      ...(project.description === '' ? [] : [['Description', project.description] as [string, string]]),
      [
        'Status',
        project.ended_because === null ? project.status : `${project.status}: ${project.ended_because}`,
      ],
      ['Workspace', project.workspace],
      ...(project.cap_usd === null ? [] : [['Cap', money(project.cap_usd)] as [string, string]]),
      ...(project.ends_at === null ? [] : [['Ends', project.ends_at] as [string, string]]),
      ...metricFacts(project.metrics),
    ]),
    agents,
    ...(project.experiments.length === 0
      ? []
      : [
          out.table(
            ['EXPERIMENT', 'NAME', 'STATE', 'RESULT'],
            project.experiments.map(({ id, name, state, said }) => [String(id), name, state, said]),
            '',
          ),
        ]),
    ...(project.notes.length === 0 ? [] : [project.notes.map(({ text }) => `note: ${text}`).join('\n')]),
  ].join('\n\n');
};

const criterionNames: Readonly<Record<string, string>> = {
  positive_roi: 'Positive ROI',
  profitable: 'Profitability',
  has_active_agents: 'Active Agents',
  has_sufficient_data: 'Sufficient Data',
};

export const evaluationText = (out: Output, evaluation: ProjectEvaluation): string =>
  [
    out.facts([['Project', evaluation.project], ...metricFacts(evaluation.metrics)]),
    evaluation.criteria
      .map(({ name, passed }) => `${passed ? '✓' : '✗'} ${criterionNames[name] ?? name}`)
      .join('\n'),
    ...evaluation.experiments.map(
      ({ name, variant, gate }) => `Experiment ${name}, ${variant}: ${gate.said}`,
    ),
    ...(evaluation.council ?? []).map(
      ({ judge, vote, reasons, cost_usd }) => `Council, ${judge}: ${vote} (${money(cost_usd)})\n  ${reasons}`,
    ),
    `${evaluation.recommendation} (ROI: ${percent(evaluation.metrics.roi)})`,
    `Would be promoted: ${evaluation.promotable.map(({ name, id }) => `${name} (${id})`).join(', ') || 'nothing'}`,
    `Digest: ${evaluation.digest}`,
  ].join('\n\n');

const gateLine = (gate: GateResult): string =>
  `${gate.said} (${gate.method}, n ${gate.n}${gate.low === null ? '' : `, ${gate.low.toFixed(3)} to ${gate.high!.toFixed(3)}`})`;

export const comparisonText = (
  out: Output,
  { a, b, differences, failures, profit }: ProjectComparison,
): string =>
  [
    out.table(
      ['METRIC', a.name, b.name, 'DIFFERENCE'],
      differences.map((row) => [
        row.metric,
        ...[row.a, row.b, row.delta].map((value) => String(Number(value.toFixed(6)))),
      ]),
      '',
    ),
    `Runs that pass, ${b.name} against ${a.name}: ${gateLine(failures)}`,
    `Profit of a run: ${gateLine(profit)}`,
  ].join('\n\n');

export const experimentText = (out: Output, experiment: Experiment): string =>
  [
    out.facts([
      ['Experiment', `${experiment.name} (${experiment.id})`],
      ...(experiment.hypothesis === '' ? [] : [['Hypothesis', experiment.hypothesis] as [string, string]]),
      ['State', experiment.state],
      [
        'Trials',
        `${experiment.trials.filter(({ state }) => state === 'done').length} of ${experiment.planned} done`,
      ],
      ['Result', experiment.said],
    ]),
    ...(experiment.variants.length === 0
      ? []
      : [
          out.table(
            ['VARIANT', 'PASSED', 'RATE', '95 %', 'COST', 'MS', 'AGAINST THE BASELINE'],
            experiment.variants.map((each) => [
              each.name,
              `${each.passed} of ${each.n}`,
              percent(each.rate * 100),
              `${percent(each.low * 100)} to ${percent(each.high * 100)}`,
              money(each.cost_usd),
              each.mean_ms.toFixed(0),
              each.gate === null ? '-' : each.gate.said,
            ]),
            '',
          ),
        ]),
  ].join('\n\n');

export const productionTable = (out: Output, agents: readonly ProductionAgent[]): string =>
  out.table(
    ['AGENT', 'LANE', 'STAGE', 'STATUS', 'RUNS', 'FAILED', 'COST', 'REVENUE', 'FROM', 'ROLLED BACK'],
    agents.map((agent) => [
      agent.id,
      agent.lane,
      agent.stage,
      agent.status,
      String(agent.runs),
      String(agent.failed_runs),
      money(agent.cost_usd),
      money(agent.revenue_usd),
      agent.project,
      agent.rollback?.reason ?? '-',
    ]),
    'Nothing is in production yet. Promote a project: coppice project promote ID',
  );
