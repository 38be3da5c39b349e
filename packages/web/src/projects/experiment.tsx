import type { Experiment } from '@coppice/protocol';
import { count, plain } from '../app/text.ts';
import { percent, usd } from './parts.ts';

/** The rate with its interval: how sure one can be is as much to be seen as the number. */
const Interval = ({ low, rate, high }: { low: number; rate: number; high: number }) => (
  <svg class="interval" viewBox="0 0 100 12" role="img" aria-label={`${percent(low)} to ${percent(high)}`}>
    <path d="M0 6H100" />
    <path class="range" d={`M${low * 100} 6H${high * 100}`} />
    <circle cx={rate * 100} cy="6" r="3" />
  </svg>
);

export const ExperimentTable = ({ experiment }: { experiment: Experiment }) => (
  <section class="tab" aria-label={plain(experiment.name)}>
    <h2>{plain(experiment.name)}</h2>
    <p class="muted">{plain(experiment.hypothesis)}</p>
    <p>{plain(experiment.failure ?? experiment.said)}</p>
    {experiment.variants.length > 0 && (
      <table>
        <thead>
          <tr>
            <th>Variant</th>
            <th class="number wide">Cases</th>
            <th class="number">Passed</th>
            <th>Interval</th>
            <th class="number wide">Cost</th>
            <th>Against the baseline</th>
          </tr>
        </thead>
        <tbody>
          {experiment.variants.map((variant) => (
            <tr key={variant.name} class={variant.name === experiment.winner ? 'selected' : ''}>
              <td>{plain(variant.name)}</td>
              <td class="number wide">{variant.n}</td>
              <td class="number">{percent(variant.rate)}</td>
              <td>
                <Interval low={variant.low} rate={variant.rate} high={variant.high} />
              </td>
              <td class="number wide">{usd(variant.cost_usd)}</td>
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
