import type { ProjectEvaluation, ProjectMetrics, Recommendation } from '@coppice/protocol';

/** In percent of the cost; 0 where nothing was spent. */
export const roiOf = (revenueMicros: number, costMicros: number): number =>
  costMicros === 0 ? 0 : ((revenueMicros - costMicros) / costMicros) * 100;

/** More than this is a strong recommendation. */
const strongRoi = 300;

type Judged = Pick<ProjectEvaluation, 'criteria' | 'all_passed' | 'recommendation'>;

/** The four criteria and the four recommendations. */
export function judge(metrics: ProjectMetrics): Judged {
  const criteria = [
    criterion('positive_roi', metrics.roi, 0),
    criterion('profitable', metrics.profit_usd, 0),
    { ...criterion('has_active_agents', metrics.active_agents, 0), threshold: 1 },
    criterion('has_sufficient_data', metrics.cost_usd, 0),
  ];
  const allPassed = criteria.every(({ passed }) => passed);
  return { criteria, all_passed: allPassed, recommendation: recommend(metrics, allPassed) };
}

const criterion = (name: string, value: number, above: number): Judged['criteria'][number] => ({
  name,
  value,
  threshold: above,
  passed: value > above,
});

function recommend({ roi, cost_usd: cost }: ProjectMetrics, allPassed: boolean): Recommendation {
  if (allPassed) return roi > strongRoi ? 'STRONGLY_RECOMMEND' : 'RECOMMEND';
  return roi > 0 && cost > 0 ? 'CONSIDER' : 'NOT_READY';
}

/** Only what passed every criterion may go to production. */
export const mayPromote = (recommendation: Recommendation): boolean =>
  recommendation === 'RECOMMEND' || recommendation === 'STRONGLY_RECOMMEND';
