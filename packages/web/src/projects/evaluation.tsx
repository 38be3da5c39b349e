import type { Project, ProjectEvaluation } from '@coppice/protocol';
import { useSignal } from '@preact/signals';
import { ask } from '../app/actions.tsx';
import { client, mayChange, noticeSignOut } from '../app/session.ts';
import { plain } from '../app/text.ts';
import { Failure } from '../app/ui.tsx';
import { promote } from './actions.ts';
import { usd } from './parts.ts';

const words: Readonly<Record<ProjectEvaluation['recommendation'], string>> = {
  STRONGLY_RECOMMEND: 'Strongly recommended for promotion',
  RECOMMEND: 'Recommended for promotion',
  CONSIDER: 'Worth considering',
  NOT_READY: 'Not ready',
};

/** What each is called, how its value is said, and what it needs. */
const criteria: Readonly<
  Record<string, readonly [title: string, say: (value: number) => string, needs: string]>
> = {
  positive_roi: ['Return on what was spent', (value) => `${value.toFixed(0)} %`, 'more than'],
  profitable: ['Profit', usd, 'more than'],
  has_active_agents: ['Active agents', String, 'at least'],
  has_sufficient_data: ['Spent so far', usd, 'more than'],
};

const isPromotable = ({ recommendation, promotable }: ProjectEvaluation): boolean =>
  promotable.length > 0 && (recommendation === 'RECOMMEND' || recommendation === 'STRONGLY_RECOMMEND');

/** Evaluates when asked to; what is promoted is exactly what is shown. */
export const Evaluation = ({ project }: { project: Project }) => {
  const found = useSignal<ProjectEvaluation | undefined>(undefined);
  const failure = useSignal<unknown>(undefined);
  const busy = useSignal(false);
  const evaluate = async (): Promise<void> => {
    busy.value = true;
    try {
      found.value = await client().projects.evaluate(project.id);
      failure.value = undefined;
    } catch (error) {
      noticeSignOut(error);
      failure.value = error;
    } finally {
      busy.value = false;
    }
  };
  const evaluation = found.value;
  return (
    <section class="tab" aria-label="Evaluation">
      <div class="title">
        <h2>{evaluation === undefined ? 'Evaluation' : words[evaluation.recommendation]}</h2>
        {mayChange() && (
          <button type="button" disabled={busy.value} onClick={() => void evaluate()}>
            {busy.value ? 'Evaluating…' : evaluation === undefined ? 'Evaluate' : 'Evaluate again'}
          </button>
        )}
        {mayChange() && evaluation !== undefined && project.status === 'active' && (
          <button
            type="button"
            class="primary"
            disabled={!isPromotable(evaluation)}
            onClick={() => ask(promote(project, evaluation))}
          >
            Promote
          </button>
        )}
      </div>
      <Failure error={failure.value} />
      {evaluation !== undefined && (
        <>
          <table>
            <thead>
              <tr>
                <th>Criterion</th>
                <th class="number">Value</th>
                <th class="number">Needs</th>
                <th>Passed</th>
              </tr>
            </thead>
            <tbody>
              {evaluation.criteria.map(({ name, value, threshold, passed }) => {
                const [title, say, needs] = criteria[name] ?? [plain(name), String, ''];
                return (
                  <tr key={name}>
                    <td>{title}</td>
                    <td class="number">{say(value)}</td>
                    <td class="number">
                      <span class="muted">{needs}</span> {say(threshold)}
                    </td>
                    <td>{passed ? 'yes' : 'no'}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
          <p>
            {evaluation.promotable.length === 0
              ? 'No agent can be promoted: each needs a positive return and must be active or paused.'
              : `${isPromotable(evaluation) ? 'Goes to production' : 'Would go to production once the project is recommended'}: ${evaluation.promotable.map(({ name }) => plain(name)).join(', ')}.`}
          </p>
        </>
      )}
    </section>
  );
};
