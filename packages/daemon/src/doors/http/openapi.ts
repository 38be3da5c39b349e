import { errorKinds, problemSchema, type Route, routes } from '@coppice/protocol';
import { z } from 'zod';

type Json = Record<string, unknown>;

const schemaOf = (type: z.ZodType, io: 'input' | 'output'): Json => {
  const { $schema: _, ...schema } = z.toJSONSchema(type, { io, unrepresentable: 'any' });
  return schema;
};

const parametersOf = (object: z.ZodObject | undefined, place: 'path' | 'query'): Json[] => {
  if (object === undefined) return [];
  const schema = schemaOf(object, 'input') as { properties?: Record<string, Json>; required?: string[] };
  return Object.entries(schema.properties ?? {}).map(([name, property]) => ({
    name,
    in: place,
    required: place === 'path' || (schema.required ?? []).includes(name),
    schema: property,
  }));
};

const contentOf = (route: Route): Json => {
  if (route.answer === 'text') return { 'text/plain': { schema: { type: 'string' } } };
  if (route.answer === 'bytes')
    return { 'application/octet-stream': { schema: { type: 'string', format: 'binary' } } };
  const schema = route.result === undefined ? {} : schemaOf(route.result, 'output');
  return { [route.answer === 'events' ? 'text/event-stream' : 'application/json']: { schema } };
};

const answersOf = (route: Route): Json => ({
  ...(route.answer === 'socket'
    ? { 101: { description: 'A WebSocket; see the guide for its messages' } }
    : { [route.status ?? 200]: { description: 'Done', content: contentOf(route) } }),
  default: { $ref: '#/components/responses/Problem' },
});

const bodyOf = (route: Route): Json | undefined => {
  if (route.upload)
    return {
      required: true,
      content: { 'application/octet-stream': { schema: { type: 'string', format: 'binary' } } },
    };
  if (route.body === undefined) return undefined;
  return {
    required: !route.body.safeParse({}).success,
    content: { 'application/json': { schema: schemaOf(route.body, 'input') } },
  };
};

const operationOf = (name: string, route: Route): Json => {
  const requestBody = bodyOf(route);
  return {
    operationId: name,
    summary: route.summary,
    tags: [route.tag],
    'x-scope': route.scope,
    security: route.scope === 'public' ? [] : [{ token: [] }],
    parameters: [...parametersOf(route.params, 'path'), ...parametersOf(route.query, 'query')],
    ...(requestBody === undefined ? {} : { requestBody }),
    responses: answersOf(route),
  };
};

/** The OpenAPI 3.1 description of the routes, made from their table. */
export const openApiDocument = (version: string): Json => {
  const paths: Record<string, Json> = {};
  for (const [name, route] of Object.entries(routes as Record<string, Route>)) {
    const path = route.path.replaceAll(/:(\w+)/g, '{$1}');
    paths[path] = { ...paths[path], [route.method.toLowerCase()]: operationOf(name, route) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Coppice',
      version,
      description: 'Sandboxes that can be snapshotted, restored, forked, compared and merged.',
    },
    paths,
    components: {
      securitySchemes: { token: { type: 'http', scheme: 'bearer' } },
      schemas: { Problem: schemaOf(problemSchema, 'output') },
      responses: {
        Problem: {
          description: `A problem document. Codes: ${Object.keys(errorKinds).join(', ')}`,
          content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
        },
      },
    },
  };
};
