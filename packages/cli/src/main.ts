import module from 'node:module';

// Before anything else is loaded, so that all of it comes from the cache the next time.
module.enableCompileCache();
const { main } = await import('./command.ts');
await main(process.argv.slice(2));
