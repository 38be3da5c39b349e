import { type Action, CoppiceError, type LineageNode } from '@coppice/protocol';
import type { ReadResourceResult, Resource, ResourceTemplateType } from '@modelcontextprotocol/server';
import { readGuestFile } from './guest-file.ts';
import type { ToolContext } from './tool-context.ts';

const lineageUri = 'coppice://lineage';
const readLimitBytes = 4 * 1024 * 1024;

export const resourceTemplates: readonly ResourceTemplateType[] = [
  {
    uriTemplate: 'coppice://sandbox/{id}/file{+path}',
    name: 'file',
    title: 'A file of a workspace',
    description: 'The first 4 MiB of a file; file_read reads larger ones in parts.',
  },
  {
    uriTemplate: 'coppice://sandbox/{id}/job/{job}/log',
    name: 'job-log',
    title: 'Output of a background job',
    description: 'What exec_poll answers with, as text.',
    mimeType: 'text/plain',
  },
];

/** All that reading them does, as the table of scopes names it. */
export const resourceActions: readonly Action[] = [
  'lineage',
  'listJobs',
  'readFile',
  'statFile',
  'readJob',
  'getJob',
];

const lineageResource: Resource = {
  uri: lineageUri,
  name: 'lineage',
  title: 'What grew from what',
  description: 'The tree of images, workspaces and snapshots.',
  mimeType: 'text/plain',
};

export const listResources = async (context: ToolContext): Promise<Resource[]> => {
  const resources: Resource[] = context.may('lineage') ? [lineageResource] : [];
  for (const sandbox of await context.visible()) {
    if (sandbox.state !== 'running' || !(await context.owns(sandbox))) continue;
    for (const job of (await context.call('listJobs', { params: { sandbox: sandbox.id } })).items)
      resources.push({
        uri: `coppice://sandbox/${sandbox.id}/job/${job.id}/log`,
        name: `${sandbox.name} job ${job.id}`,
        description: job.command.at(-1)?.slice(0, 200) ?? '',
        mimeType: 'text/plain',
      });
  }
  return resources;
};

export const readResource = async (context: ToolContext, uri: string): Promise<ReadResourceResult> => {
  if (uri === lineageUri) return text(uri, 'text/plain', await lineageText(context));
  const file = /^coppice:\/\/sandbox\/([^/]+)\/file(\/.*)$/.exec(uri);
  if (file !== null) return readFile(context, uri, file[1]!, decodePath(file[2]!));
  const job = /^coppice:\/\/sandbox\/([^/]+)\/job\/(\d{1,9})\/log$/.exec(uri);
  if (job !== null) return text(uri, 'text/plain', await jobLog(context, job[1]!, Number(job[2])));
  throw new CoppiceError('not_found', `there is no resource ${uri}`, {
    hint: `Read ${lineageUri}, or one of the templates: ${resourceTemplates.map((template) => template.uriTemplate).join(', ')}.`,
  });
};

const text = (uri: string, mimeType: string, content: string): ReadResourceResult => ({
  contents: [{ uri, mimeType, text: content }],
});

const decodePath = (path: string): string => {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
};

const readFile = async (
  context: ToolContext,
  uri: string,
  ref: string,
  path: string,
): Promise<ReadResourceResult> => {
  const id = await context.own(ref);
  const file = await readGuestFile(context, id, path, { offset: 0, limit: readLimitBytes });
  const body = file.encoding === 'utf-8' ? { text: file.content } : { blob: file.content };
  const rest = `[TRUNCATED: ${file.sizeBytes ?? 'unknown'} bytes total; read on with file_read path=${path} offset=${file.bytes}]`;
  return {
    contents: [
      { uri, mimeType: file.mimeType, ...body },
      // Beside the content and not in it, as it is none of the file.
      ...(file.truncated ? [{ uri, mimeType: 'text/plain', text: rest }] : []),
    ],
  };
};

const jobLog = async (context: ToolContext, ref: string, jobId: number): Promise<string> => {
  const params = { sandbox: await context.own(ref), job: jobId };
  const query = { max_bytes: readLimitBytes };
  const { entries, cursor, dropped_bytes: dropped } = await context.call('readJob', { params, query });
  const { log_bytes: size } = await context.call('getJob', { params });
  const lost = dropped > 0 ? `[LOST: the first ${dropped} bytes; the log keeps the newest part]\n` : '';
  const rest = size > cursor ? `\n[TRUNCATED: call exec_poll with cursor=${cursor} for the rest]` : '';
  return `${lost}${entries.map((entry) => entry.text).join('')}${rest}`;
};

const label = (node: LineageNode): string =>
  `${node.kind} ${node.name} (${node.id}${node.state === null ? '' : `, ${node.state}`}${node.has_memory ? ', with memory' : ''}${node.restored === null ? '' : `, restored to ${node.restored.to}`})`;

/** An indented tree. */
const lineageText = async (context: ToolContext): Promise<string> => {
  const { nodes } = await context.call('lineage', { query: {} });
  const known = new Set(nodes.map((node) => node.id));
  const children = Map.groupBy(nodes, (node) =>
    node.parent !== null && known.has(node.parent) ? node.parent : '',
  );
  const lines: string[] = [];
  const add = (parent: string, depth: number): void => {
    for (const node of children.get(parent) ?? []) {
      lines.push(`${'  '.repeat(depth)}${label(node)}`);
      add(node.id, depth + 1);
    }
  };
  add('', 0);
  return lines.join('\n');
};
