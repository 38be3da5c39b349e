import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { AgentTypes } from '../src/index.ts';

const directory = mkdtempSync(join(tmpdir(), 'coppice-types-'));
afterAll(() => rmSync(directory, { recursive: true }));
const types = new AgentTypes(directory);

describe('an agent type', () => {
  test.each(['dds_prospecting', 'content_creator', 'trend_monitor', 'seo_optimizer', 'system_monitor'])(
    'that the document names ships and takes a model: %s',
    (name) => {
      const type = types.get(name);
      expect(type.needsModel).toBe(true);
      expect(type.parameters).toMatchObject({ properties: { model: { type: 'string' } } });
    },
  );

  test('needs no model where it is scripted', () => {
    expect(types.get('scripted').needsModel).toBe(false);
    expect(types.get('scripted').check({ script: 'true' })).toEqual({ script: 'true' });
  });

  test('checks a configuration and fills in what is left out', () => {
    const type = types.get('dds_prospecting');
    const config = type.check({ vertical: 'dentists', location: 'NYC' });
    expect(config).toMatchObject({ vertical: 'dentists', location: 'NYC', prospect_count: 20 });
    expect(type.prompt(config)).toContain('Vertical: dentists. Place: NYC. Name up to 20 ');
    expect(() => type.check({ location: 'NYC' })).toThrow(
      /configuration of dds_prospecting is refused: vertical/,
    );
    expect(() => type.check({ vertical: 'dentists', prospect_count: 0 })).toThrow(/prospect_count/);
    expect(() => type.check({ vertical: 'dentists', verticals: 1 })).toThrow(/verticals/);
  });

  test('gives ten times the tokens of production to an agent of a project', () => {
    const type = types.get('dds_prospecting');
    expect(type.tokenBudget({}, 'production')).toBe(1000);
    expect(type.tokenBudget({}, 'project')).toBe(10_000);
    expect(type.tokenBudget({ token_budget: 20_000 }, 'project')).toBe(20_000);
    expect(type.tokenBudget({ token_budget: 20_000 }, 'production')).toBe(1000);
  });

  test('runs as often as its configuration says', () => {
    const type = types.get('content_creator');
    expect(type.scheduleS(type.check({ platform: 'linkedin', frequency: 'daily' }))).toBe(86_400);
    expect(type.scheduleS(type.check({ platform: 'twitter', frequency: 'hourly' }))).toBe(3600);
    expect(type.scheduleS(type.check({ platform: 'twitter' }))).toBeNull();
    expect(type.scheduleS({ schedule_s: 5 })).toBe(5);
  });

  test('of the operator comes first, and a file that is wrong is named', () => {
    const own = {
      name: 'scripted',
      version: 7,
      title: 'Mine',
      description: '',
      adapter: 'command',
      command: 'true',
      parameters: { type: 'object' },
      limits: { tokens: 5, time_s: 10 },
    };
    writeFileSync(join(directory, 'scripted.json'), JSON.stringify(own));
    expect(types.get('scripted').file.version).toBe(7);
    writeFileSync(
      join(directory, 'broken.json'),
      JSON.stringify({ ...own, name: 'broken', command: undefined }),
    );
    expect(() => types.list()).toThrow(/broken.json has no command/);
    writeFileSync(join(directory, 'broken.json'), '{');
    expect(() => types.list()).toThrow(/broken.json is no JSON/);
    rmSync(join(directory, 'broken.json'));
    expect(() => types.get('astrologer')).toThrow('there is no agent type astrologer');
  });
});
