import { branchNameSchema, CoppiceError, type ticketTypes } from '@coppice/protocol';

export interface Ticket {
  readonly id: string;
  readonly title: string;
  readonly type: (typeof ticketTypes)[number];
  readonly critical: boolean;
}

const longestSlug = 25;
const mostTries = 100;

/** Of a title, what can stand in a branch: letters and digits in words, cut between words where that is possible. */
export function slugOf(title: string): string {
  const words = title
    .normalize('NFKD')
    .toLowerCase()
    .replace(/[\u0300-\u036f]/g, '')
    .split(/[^a-z0-9]+/)
    .filter((word) => word !== '');
  let slug = '';
  for (const word of words) {
    const longer = slug === '' ? word : `${slug}-${word}`;
    if (longer.length > longestSlug) break;
    slug = longer;
  }
  return slug === '' ? (words[0] ?? '').slice(0, longestSlug) : slug;
}

const prefixOf = ({ type, critical }: Ticket): string => {
  if (type !== 'bug') return type;
  return critical ? 'hotfix' : 'fix';
};

/** `feature/12-add-dark-mode`; a name that is taken gets `-2`, `-3` and so on. */
export async function branchNameFor(
  ticket: Ticket,
  isTaken: (name: string) => Promise<boolean>,
): Promise<string> {
  const slug = slugOf(ticket.title);
  const plain = `${prefixOf(ticket)}/${ticket.id}${slug === '' ? '' : `-${slug}`}`;
  if (
    !/^[A-Za-z0-9]/.test(ticket.id) ||
    ticket.id.includes('/') ||
    !branchNameSchema.safeParse(plain).success
  )
    throw new CoppiceError(
      'invalid_argument',
      `the ticket ${ticket.id} cannot stand in the name of a branch`,
      {
        hint: 'Its id must be letters, digits, `.`, `_` or `-`.',
      },
    );
  for (let n = 1; n <= mostTries; n += 1) {
    const name = n === 1 ? plain : `${plain}-${n}`;
    if (!(await isTaken(name))) return name;
  }
  throw new CoppiceError('limit_reached', `${plain} and ${mostTries - 1} more names like it are taken`, {
    hint: 'Delete branches of this ticket that are no longer needed.',
  });
}
