import { z } from 'zod';
import { type AgentReport, emptyReport } from './work-order.ts';

/** Where an agent says what it earned, spent on its own and measured. */
export const reportPath = '/workspace/report.json';
export const reportBytes = 65_536;

const dollars = z.number().min(0).max(1e6);
const reportSchema = z.object({
  revenue_usd: dollars.default(0),
  cost_usd: dollars.default(0),
  metrics: z
    .record(z.string().regex(/^[a-z][a-z0-9_]{0,62}$/), z.number())
    .refine((metrics) => Object.keys(metrics).length <= 64)
    .default({}),
  notes: z.array(z.string().min(1).max(4000)).max(32).default([]),
});

/** What a report says; one that is wrong says nothing, and why is returned. */
export function readReport(text: string | undefined): {
  readonly report: AgentReport;
  readonly problem?: string;
} {
  if (text === undefined) return { report: emptyReport };
  try {
    const { revenue_usd, cost_usd, metrics, notes } = reportSchema.parse(JSON.parse(text));
    return { report: { revenueUsd: revenue_usd, costUsd: cost_usd, metrics, notes } };
  } catch {
    return { report: emptyReport, problem: `its ${reportPath} is no report and counts for nothing` };
  }
}
