import { useSignal } from '@preact/signals';
import { type Action, asked, type Recipe, type Values } from './actions.tsx';
import { go } from './router.ts';
import { noticeSignOut } from './session.ts';
import { quoted } from './text.ts';
import { Copy, Dialog, Failure } from './ui.tsx';

const curlOf = ({ first = [], ...last }: Recipe): string => [...first, last].map(callOf).join('\n');

const callOf = ({ method, path, body }: Pick<Recipe, 'method' | 'path' | 'body'>): string =>
  [
    `curl -X ${method} "$COPPICE_URL${path}" -H "Authorization: Bearer $COPPICE_TOKEN"`,
    ...(body === undefined ? [] : [`-H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`]),
  ].join(' \\\n  ');

const Recipes = ({ recipe }: { recipe: Recipe }) => {
  const texts = { CLI: recipe.cli, curl: curlOf(recipe), SDK: recipe.sdk };
  const shown = useSignal<keyof typeof texts>('CLI');
  return (
    <div class="recipes">
      <div class="tabs">
        {(Object.keys(texts) as (keyof typeof texts)[]).map((name) => (
          <button
            type="button"
            key={name}
            aria-pressed={shown.value === name}
            onClick={() => {
              shown.value = name;
            }}
          >
            {name}
          </button>
        ))}
        <Copy text={texts[shown.value]} />
      </div>
      <pre tabIndex={0}>{texts[shown.value]}</pre>
    </div>
  );
};

const Form = ({ action }: { action: Action }) => {
  const values = useSignal<Values>(
    Object.fromEntries((action.fields ?? []).map(({ name, value = '' }) => [name, value])),
  );
  const typed = useSignal('');
  const busy = useSignal(false);
  const failure = useSignal<unknown>(undefined);
  const set = (name: string, value: string): void => {
    values.value = { ...values.value, [name]: value };
  };
  const submit = async (): Promise<void> => {
    busy.value = true;
    failure.value = undefined;
    try {
      const href = await action.run(values.value);
      asked.value = undefined;
      if (href !== undefined) go(href);
    } catch (error) {
      noticeSignOut(error);
      failure.value = error;
    } finally {
      busy.value = false;
    }
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <h2>{action.title}</h2>
      <p>{action.effect}</p>
      {action.fields?.map(({ name, label, kind, options, placeholder }) => (
        <label key={name} class={kind}>
          <span>{label}</span>
          {kind === 'choice' ? (
            <select value={values.value[name]} onChange={(event) => set(name, event.currentTarget.value)}>
              {options?.map((option) => (
                <option key={option}>{option}</option>
              ))}
            </select>
          ) : (
            <input
              {...(kind === 'flag'
                ? ({ type: 'checkbox', checked: values.value[name] === 'yes' } as const)
                : kind === 'number'
                  ? ({ type: 'number', min: 1, max: 100, value: values.value[name] } as const)
                  : ({ type: 'text', value: values.value[name], placeholder } as const))}
              autocomplete="off"
              spellcheck={false}
              onInput={(event) =>
                set(
                  name,
                  kind === 'flag' ? (event.currentTarget.checked ? 'yes' : '') : event.currentTarget.value,
                )
              }
            />
          )}
        </label>
      ))}
      {action.confirm !== undefined && (
        <label class="text">
          <span>
            Type <b>{action.confirm}</b> to go on
          </span>
          <input
            type="text"
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => {
              typed.value = event.currentTarget.value;
            }}
          />
        </label>
      )}
      <Recipes recipe={action.recipe(values.value)} />
      <Failure error={failure.value} />
      <div class="buttons">
        <button
          type="button"
          class="quiet"
          onClick={() => {
            asked.value = undefined;
          }}
        >
          Cancel
        </button>
        <button
          type="submit"
          class={action.confirm === undefined ? 'primary' : 'danger'}
          disabled={busy.value || (action.confirm !== undefined && typed.value !== action.confirm)}
        >
          {busy.value ? 'Working…' : action.verb}
        </button>
      </div>
    </form>
  );
};

export const ActionDialog = () =>
  asked.value === undefined ? null : (
    <Dialog
      title={asked.value.title}
      onClose={() => {
        asked.value = undefined;
      }}
    >
      <Form action={asked.value} />
    </Dialog>
  );
