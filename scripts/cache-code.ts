/** `node OPTIONS cache-code.ts FILE`: writes down what V8 makes of a bundle that will run with these options. */
import { writeFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { cacheFileOf, compileCode } from './cached-code.ts';

const [path = ''] = process.argv.slice(2);
// All functions now, and not each when it is first called. Options are part of the cache, so this one must not stay.
setFlagsFromString('--no-lazy');
const code = compileCode(path);
setFlagsFromString('--lazy');
writeFileSync(cacheFileOf(path), code.createCachedData());
