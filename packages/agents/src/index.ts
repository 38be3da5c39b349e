export * from './adapter.ts';
export * from './create-adapter.ts';
export * from './profiles.ts';
