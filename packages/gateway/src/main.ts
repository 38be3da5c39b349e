import { readFileSync } from 'node:fs';
import { mayAskModels } from '@coppice/protocol';
import { z } from 'zod';
import { becomeUser } from './become-user.ts';
import { ControlServer } from './control/control-server.ts';
import { Egress } from './egress/egress.ts';
import { lookupBy } from './egress/reach.ts';
import { ForgeRelay } from './forges/forge-relay.ts';
import { ConfiguredModels } from './models/configured-models.ts';
import { Authority } from './secrets/authority.ts';
import { keysOfCommand, keysOfFile } from './secrets/sealing-keys.ts';
import { SecretKeeper } from './secrets/secret-keeper.ts';
import { Secrets } from './secrets/secrets.ts';
import { GatewayState } from './state.ts';

/**
 * Written by the daemon as the only argument. It starts this in the directory of the gateway, so paths are short: a socket's may have 107
 * characters at most.
 */
const optionsSchema = z.strictObject({
  version: z.string(),
  names: z.cidrv4(),
  host: z.ipv4(),
  resolvers: z.array(z.string()),
  /** Authorities in PEM that servers are held to, besides the well-known ones. */
  trust: z.array(z.string()).default([]),
  /** The user and group that it runs as. */
  id: z.int().min(1),
});

const { version, names, host, resolvers, trust, id } = optionsSchema.parse(JSON.parse(process.argv[2] ?? ''));
// Keys come by a pipe, as arguments and variables can be read by others. Empty: the key is a file.
const printedKeys = readFileSync(0, 'utf8');
// From here on the process has no right of root, and so nothing that a stranger sends reaches one that has.
becomeUser(id);
const keyFile = 'secrets.key';
const state = new GatewayState('gateway.db');
const keys = printedKeys === '' ? keysOfFile(keyFile) : keysOfCommand(printedKeys, keyFile);
const secrets = new Secrets(state, keys);
const keeper = new SecretKeeper({ secrets, authority: Authority.open('authority.pem'), trust });
const models = new ConfiguredModels({
  file: '../models.json',
  ledgerFile: 'ledger.db',
  secrets,
});
const egress = await Egress.open({
  state,
  names,
  host,
  lookup: lookupBy(resolvers),
  keeper,
  now: Date.now,
  emit: (event) => models.outbox.post(event),
  own: (request, response, policy) => {
    if (mayAskModels(policy.allow))
      return void models.handle(request, response, { sandbox: policy.sandbox, ...policy.caller });
    response.writeHead(403, { 'content-type': 'text/plain; charset=utf-8' });
    response.end('Coppice: this sandbox may not ask for models. Allow it: coppice net NAME --allow models\n');
  },
});
const control = new ControlServer({
  egress,
  models,
  secrets,
  forges: new ForgeRelay(secrets, trust),
  rekey: (printed) =>
    secrets.rekey(printed === '' ? keysOfFile(keyFile, true) : keysOfCommand(printed, keyFile)),
  trustFor: (names) => keeper.trustFor(names),
  version,
  names,
  end: () => process.kill(process.pid, 'SIGTERM'),
});
await control.listen('control.sock');
process.on('SIGTERM', () => {
  control.close();
  egress.close();
  models.close();
  state.close();
  process.exit(0);
});
// Whoever started it reads this line, and may go.
process.stdout.write('ready\n');
process.stdout.on('error', () => {});
