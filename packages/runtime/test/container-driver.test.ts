import { describeDriver } from '@coppice/testkit';
import { makeContainerDriver } from './container/make-container-driver.ts';

describeDriver('container', makeContainerDriver);
