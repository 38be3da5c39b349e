import { CoppiceError } from '@coppice/protocol';
import type { GetPromptResult, Prompt } from '@modelcontextprotocol/server';

interface Pattern {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly steps: readonly string[];
}

/** The ways of working that the guide describes. */
const patterns: readonly Pattern[] = [
  {
    name: 'disposable-sandbox',
    title: 'Disposable sandbox',
    description: 'Run code that is not trusted, and leave nothing behind.',
    steps: [
      'workspace_create with a name; leave allow_internet out unless packages must be installed.',
      'file_write the code into the workspace.',
      'exec it with a short timeout_secs; look at exit_code, stdout and stderr.',
      'workspace_destroy, whatever the outcome.',
    ],
  },
  {
    name: 'checkpoint-rollback',
    title: 'Checkpoint and rollback',
    description: 'Change code in small steps, and go back at once when a step breaks it.',
    steps: [
      'workspace_create, then exec the set-up (allow_internet if it downloads).',
      'snapshot_create with a name that says what state it holds, such as after-npm-install.',
      'file_write or file_edit one change, then exec the tests.',
      'If they fail: snapshot_restore to that name and try another way. If they pass: snapshot_create again.',
    ],
  },
  {
    name: 'parallel-hypotheses',
    title: 'Parallel hypotheses',
    description: 'Try several approaches at once, each in its own copy.',
    steps: [
      'Set up one workspace, and snapshot_create, for example base-ready.',
      'workspace_fork once for each approach with new_name, or workspace_batch_fork.',
      'Write and test each approach in its fork; exec_parallel runs one command in all.',
      'Keep the winner, workspace_destroy the others.',
    ],
  },
  {
    name: 'persistent-environment',
    title: 'Persistent build environment',
    description: 'Heavy set-up once, used again in later sessions.',
    steps: [
      'workspace_list first: if the workspace is there, use it, and workspace_start it when it is stopped.',
      'Otherwise workspace_create with enough memory_mb and disk_gb, exec the set-up, snapshot_create.',
      'exec the work with workdir; for what takes long, exec_background and exec_poll with wait_secs.',
      'workspace_stop when you pause: it frees memory and keeps the disk.',
    ],
  },
  {
    name: 'edit-files',
    title: 'Edit files',
    description: 'Find, read and change files with little risk.',
    steps: [
      'file_list to see the layout.',
      'file_read the file before any change; offset and limit for large ones.',
      'file_edit for a few lines: old_string exactly as read and unique; file_write for new files.',
      'exec the tests.',
    ],
  },
  {
    name: 'git-workflow',
    title: 'Git workflow',
    description: 'From clone to push inside a workspace.',
    steps: [
      'workspace_create with allow_internet: true; for private repositories set_env GIT_TOKEN, never a token in a URL.',
      'git_clone with url and path.',
      'file_edit the change, then workspace_git_status and git_diff.',
      'exec the tests, then git_commit and git_push.',
    ],
  },
  {
    name: 'snapshot-sizes',
    title: 'Snapshot sizes',
    description: 'See what snapshots cost, and remove those that are not needed.',
    steps: [
      'snapshot_list: used_bytes is what deleting would free, referenced_bytes all it refers to.',
      'snapshot_diff to see what changed since a snapshot.',
      'snapshot_delete the old ones; where forks depend on one, workspace_destroy those first.',
    ],
  },
];

export const prompts: readonly Prompt[] = patterns.map(({ name, title, description }) => ({
  name,
  title,
  description,
  arguments: [{ name: 'task', description: 'What is to be done, in your own words.', required: false }],
}));

export const getPrompt = (name: string, given: Readonly<Record<string, string>>): GetPromptResult => {
  const pattern = patterns.find((candidate) => candidate.name === name);
  if (pattern === undefined)
    throw new CoppiceError('not_found', `there is no prompt ${name}`, {
      hint: `There are ${patterns.map((candidate) => candidate.name).join(', ')}.`,
    });
  const task = given.task === undefined || given.task === '' ? '' : `The task: ${given.task}\n\n`;
  const steps = pattern.steps.map((step, index) => `${index + 1}. ${step}`).join('\n');
  const text = `${task}${pattern.description} Work with the Coppice tools in this order:\n\n${steps}`;
  return { description: pattern.description, messages: [{ role: 'user', content: { type: 'text', text } }] };
};
