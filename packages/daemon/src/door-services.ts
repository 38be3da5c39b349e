import type { ProjectsRoom } from './projects/projects-room.ts';
import type { Services } from './services.ts';

/** What the doors may call: the services, and the room of projects, which stands on them. */
export interface DoorServices extends Services {
  readonly projects: Pick<
    ProjectsRoom,
    'service' | 'evaluator' | 'production' | 'snapshots' | 'notifier' | 'finder'
  >;
}
