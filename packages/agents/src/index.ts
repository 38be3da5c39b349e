export * from './adapter.ts';
export * from './agent-templates.ts';
export * from './create-adapter.ts';
export { toolbox } from './launch-of.ts';
export * from './profile.ts';
export { profiles } from './profiles.ts';
