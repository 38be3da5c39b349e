import { describeDriver } from '@coppice/testkit';
import { makeGvisorDriver } from './gvisor/make-gvisor-driver.ts';

describeDriver('gvisor', makeGvisorDriver, { survivesOutOfMemory: false, countsPids: false });
