import { createHmac, timingSafeEqual } from 'node:crypto';
import { CoppiceError } from '@coppice/protocol';
import type { WebhookEvent, WebhookRequest } from './forge.ts';

const types: Readonly<Record<string, WebhookEvent['type']>> = {
  push: 'push',
  pull_request: 'pull_request',
  check_run: 'check',
  check_suite: 'check',
  status: 'check',
  pull_request_review: 'review',
  pull_request_approved: 'review',
  pull_request_rejected: 'review',
  issues: 'issue',
  issue_comment: 'issue',
};

const gitlabTypes: Readonly<Record<string, WebhookEvent['type']>> = {
  push: 'push',
  'merge request': 'pull_request',
  pipeline: 'check',
  job: 'check',
  issue: 'issue',
  note: 'issue',
};

const webhookRefused = (why: string): CoppiceError =>
  new CoppiceError('unauthenticated', `the webhook is refused: ${why}`, {
    hint: 'Give the forge and the daemon the same secret.',
  });

const sameSecret = (given: string, wanted: string): boolean => {
  const [one, other] = [Buffer.from(given), Buffer.from(wanted)];
  return one.length === other.length && timingSafeEqual(one, other);
};

/** GitHub's way, and that of forges that learned from it: HMAC-SHA256 of the body, as `sha256=` and hexadecimal digits or only these. */
export function readSignedWebhook(
  { headers, body }: WebhookRequest,
  secret: string,
  signatureHeader: string,
  eventHeader: string,
): WebhookEvent {
  if (secret === '') throw webhookRefused('no secret is set for this forge');
  const given = (headers[signatureHeader] ?? '').replace(/^sha256=/, '');
  const wanted = createHmac('sha256', secret).update(body).digest('hex');
  if (!sameSecret(given, wanted)) throw webhookRefused('its signature is not that of its content');
  return readEvent(types[headers[eventHeader] ?? ''] ?? 'other', body);
}

/** GitLab's way: the secret itself, in a header. */
export function readTokenWebhook(
  { headers, body }: WebhookRequest,
  secret: string,
  tokenHeader: string,
  eventHeader: string,
): WebhookEvent {
  if (secret === '') throw webhookRefused('no secret is set for this forge');
  if (!sameSecret(headers[tokenHeader] ?? '', secret)) throw webhookRefused('it does not know the secret');
  const name = (headers[eventHeader] ?? '').replace(/ Hook$/, '').toLowerCase();
  return readEvent(gitlabTypes[name] ?? 'other', body);
}

function readEvent(type: WebhookEvent['type'], body: Uint8Array): WebhookEvent {
  let content: unknown;
  try {
    content = JSON.parse(Buffer.from(body).toString('utf8'));
  } catch {
    throw new CoppiceError('invalid_argument', 'the content of the webhook is no JSON');
  }
  const of = (value: unknown, key: string): unknown =>
    typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[key] : undefined;
  const action = of(content, 'action') ?? of(of(content, 'object_attributes'), 'action');
  const number =
    of(content, 'number') ??
    of(of(content, 'pull_request'), 'number') ??
    of(of(content, 'object_attributes'), 'iid');
  return {
    type,
    action: typeof action === 'string' ? action.slice(0, 64) : null,
    pull: typeof number === 'number' && Number.isSafeInteger(number) ? number : null,
  };
}
