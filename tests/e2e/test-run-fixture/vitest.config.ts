import { defineConfig } from 'vitest/config';
import { patience } from '../../../vitest.config.ts';

export default defineConfig({
  test: { ...patience, include: ['*.fixture.ts'], root: import.meta.dirname },
});
