import { z } from 'zod';
import { defineTool, readOnly, type Tool } from '../tool.ts';

const list = defineTool({
  name: 'image_list',
  title: 'List images and drivers',
  description:
    'Images that workspace_create takes as base_image, and drivers that it takes as driver, with the one that is used when none is named. Do not use it to see workspaces (workspace_list).',
  actions: ['listImages'],
  extras: ['doctor'],
  annotations: readOnly,
  input: z.strictObject({}),
  output: z.object({
    images: z.array(
      z.object({ name: z.string(), size_mb: z.number(), created_at: z.string(), used_by: z.number() }),
    ),
    default_driver: z.string().optional(),
    drivers: z
      .array(z.object({ name: z.string(), usable: z.boolean(), detail: z.string() }))
      .optional()
      .describe('For administrators.'),
  }),
  run: async (context) => {
    const { items } = await context.call('listImages', {});
    const doctor = context.may('doctor') ? await context.call('doctor', {}) : undefined;
    return {
      images: items.map((image) => ({
        name: image.name,
        size_mb: Math.round(image.size_bytes / 1_048_576),
        created_at: image.created_at,
        used_by: image.used_by.length,
      })),
      ...(doctor === undefined
        ? {}
        : {
            default_driver: doctor.driver,
            drivers: Object.entries(doctor.drivers).map(([name, driver]) => ({ name, ...driver })),
          }),
    };
  },
});

export const imageTools: readonly Tool[] = [list];
