import type { Sandbox } from '@coppice/protocol';
import { events } from '../app/store.ts';
import { Header, VirtualList } from '../app/ui.tsx';
import { EventRow } from '../events/page.tsx';

export const Tab = ({ sandbox }: { sandbox: Sandbox }) => (
  <VirtualList
    label="Events of this sandbox"
    className="events-list"
    items={events.value.filter(({ sandbox_id }) => sandbox_id === sandbox.id).toReversed()}
    rowHeight={30}
    keyOf={({ seq }) => String(seq)}
    header={<Header columns={[['Time'], ['What'], ['Sandbox'], ['More', 'wide']]} />}
    row={(event) => <EventRow event={event} />}
  />
);
