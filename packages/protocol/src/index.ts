export * from './errors.ts';
export * from './files.ts';
export * from './ids.ts';
export * from './machine.ts';
export * from './processes.ts';
export * from './routes.ts';
export * from './sandboxes.ts';
export * from './snapshots.ts';
