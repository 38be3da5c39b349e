import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { CoppiceError } from '@coppice/protocol';
import { AddressBook } from './address-book.ts';
import {
  AddressPlan,
  candidateRanges,
  freeRange,
  linkPrefix,
  namespacePrefix,
  tableName,
} from './address-plan.ts';
import { type Cidr, formatCidr, overlaps, parseCidr } from './cidr.ts';
import { HostRules, lines, slotOfChain } from './host-rules.ts';
import type {
  Attachment,
  LinkUse,
  NameDoors,
  NameGateway,
  NamePlace,
  Network,
  NetworkPolicy,
} from './network.ts';
import { NetworkCommands } from './network-commands.ts';
import { checkPolicy, isByName, isClosed } from './policy-rules.ts';
import { sandboxRules } from './sandbox-rules.ts';

export interface NftNetworkOptions {
  /** First eight hex digits of the digest of the home's path; part of every name. */
  readonly homeKey: string;
  /** Where addresses are recorded: network.json of the home. */
  readonly file: string;
  /** Path of a network namespace that plays the host; the machine's own by default. */
  readonly hostNetns?: string;
  /** Carries what policies allow by name. */
  readonly gateway?: NameGateway;
}

const namespaceDirectory = '/run/netns';
/** What the link is called inside. */
const innerLink = 'eth0';

/**
 * Sandboxes on point-to-point links, each with one address; no bridge, so every packet passes the host's rules. A sandbox
 * whose policy is closed has no link at all, and costs nothing here.
 */
export class NftNetwork implements Network {
  readonly #homeKey: string;
  readonly #book: AddressBook;
  readonly #commands: NetworkCommands;
  readonly #gateway: NameGateway | undefined;
  /** Changes of the address book and of the host's table, one after another. */
  #queue: Promise<unknown> = Promise.resolve();
  #forwards = false;
  #hasNames = false;

  private constructor(options: NftNetworkOptions, book: AddressBook) {
    this.#homeKey = options.homeKey;
    this.#book = book;
    this.#commands = new NetworkCommands(options.hostNetns);
    this.#gateway = options.gateway;
  }

  static async open(options: NftNetworkOptions): Promise<NftNetwork> {
    if (!/^[0-9a-f]{8}$/.test(options.homeKey)) throw new Error(`not a home key: ${options.homeKey}`);
    return new NftNetwork(options, await AddressBook.open(options.file));
  }

  async createNamespace(sandboxId: string): Promise<string> {
    const name = this.#namespaceName(sandboxId);
    const path = join(namespaceDirectory, name);
    if (!(await this.#namespaces()).includes(name)) await this.#commands.host(['ip', 'netns', 'add', name]);
    return path;
  }

  async apply(
    sandboxId: string,
    netns: string,
    policy: NetworkPolicy,
    use: LinkUse = 'when-open',
  ): Promise<Attachment> {
    checkPolicy(policy);
    if (isClosed(policy) && use === 'when-open') {
      const slot = this.#book.slotOf(sandboxId);
      if (slot !== undefined) {
        await this.#gateway?.dismiss(sandboxId);
        await this.#detach(slot);
      }
      return { address: null };
    }
    const known = this.#book.slotOf(sandboxId);
    const slot = known ?? (await this.#exclusively(() => this.#newSlot(sandboxId)));
    try {
      const doors = await this.#doors(sandboxId, slot, policy);
      await allDone([
        // A kernel of its own puts packets on the link below the rules inside: there the host's are all there is.
        ...(use === 'when-open'
          ? [this.#commands.sandboxRules(netns, sandboxRules(this.#plan(), slot, policy))]
          : []),
        this.#exclusively(() => this.#commands.hostRules(this.#rules().attach(slot, policy, doors))),
        this.#forwardPackets(),
        ...(doors === undefined ? [] : [this.#takeNames()]),
        // Nothing runs in there yet that could send anything before the rules stand.
        ...(use === 'fresh' ? [this.#link(netns, slot, known !== undefined)] : []),
      ]);
      const address = this.#plan().address(slot);
      // A sandbox that was restarted has a new namespace, without the link of the old one.
      const linked = use !== 'when-open' || (known !== undefined && (await this.#hasLink(netns, address)));
      if (!linked) await this.#link(netns, slot, false);
      return { address };
    } catch (error) {
      if (known === undefined) await this.#undo(sandboxId, slot);
      throw error;
    }
  }

  /** Where the gateway is for the sandboxes of this home, whether or not one has a network yet. */
  async gatewayPlace(): Promise<Omit<NamePlace, 'address'>> {
    if (this.#book.range === undefined)
      await this.#exclusively(async () => {
        if (this.#book.range === undefined)
          await this.#book.setRange(this.#chooseRange(await this.#routes()));
      });
    const plan = this.#plan();
    return { names: formatCidr(plan.names), host: plan.gateway };
  }

  async release(sandboxId: string): Promise<void> {
    const slot = this.#book.slotOf(sandboxId);
    if (slot !== undefined) {
      await this.#gateway?.dismiss(sandboxId);
      await this.#detach(slot);
      await this.#exclusively(() => this.#book.free(sandboxId));
    }
    await this.#deleteNamespace(this.#namespaceName(sandboxId));
  }

  async sweep(keep: ReadonlySet<string>): Promise<void> {
    await this.#gateway?.retain(keep);
    for (const id of this.#book.slots.keys()) if (!keep.has(id)) await this.release(id);
    const prefix = namespacePrefix(this.#homeKey);
    for (const name of await this.#namespaces()) {
      if (name.startsWith(prefix) && !keep.has(name.slice(prefix.length))) await this.#deleteNamespace(name);
    }
    const links = await this.#links();
    if (this.#book.range === undefined) {
      // Links without a record of them: the record was lost, and what belonged to it goes.
      for (const link of links) await this.#deleteLink(link);
      if (links.length > 0) await this.#deleteTable();
      return;
    }
    // Looked up after each list was made: whatever came to be meanwhile is in the book before it is in the kernel.
    const isKnown = (slot: number): boolean => this.#book.slots.values().some((known) => known === slot);
    const known = new Set(this.#book.slots.values().map((slot) => this.#plan().linkName(slot)));
    for (const link of links) if (!known.has(link)) await this.#deleteLink(link);
    for (const slot of await this.#chains()) if (!isKnown(slot)) await this.#forgetRules(slot);
  }

  /** Removes everything of this home, the record of its addresses included. */
  async purge(): Promise<void> {
    await this.sweep(new Set());
    if (this.#book.range !== undefined) {
      await this.#deleteTable();
      await this.#giveNamesBack();
    }
    await this.#book.erase();
  }

  /** Whether this machine can give sandboxes a network, without changing anything; a reason when it cannot. */
  async probe(): Promise<{ readonly usable: boolean; readonly detail: string }> {
    const plan = new AddressPlan(this.#homeKey, candidateRanges(this.#homeKey)[0]!);
    const open = {
      allowInternet: true,
      allowInterSandbox: true,
      allowedPorts: [443],
      allow: [],
      deny: [],
      allowHostPorts: [1],
      names: [],
      deniedNames: [],
    };
    try {
      const script = new HostRules(this.#homeKey, plan).attach(2, open);
      await this.#commands.host(['nft', '--check', '-f', '-'], { input: script });
      const { stdout } = await this.#commands.host(['nft', '--version']);
      return { usable: true, detail: stdout.trim() };
    } catch (error) {
      return { usable: false, detail: (error as Error).message };
    }
  }

  async #newSlot(sandboxId: string): Promise<number> {
    // With no address handed out a range may still be changed, should another home or a VPN have taken it meanwhile.
    if (this.#book.slots.size === 0) {
      const taken = await this.#routes();
      const current = this.#book.range;
      if (current === undefined || taken.some((route) => overlaps(route, current))) {
        await this.#book.setRange(this.#chooseRange(taken));
      }
    }
    return this.#book.take(sandboxId);
  }

  #chooseRange(taken: readonly Cidr[]): Cidr {
    const range = freeRange(this.#homeKey, taken);
    if (range !== undefined) return range;
    throw new CoppiceError('unsupported', 'no block of addresses is free for the network of sandboxes', {
      hint: 'Coppice needs one /16 of 10.192.0.0/10 that no route of this machine covers; see `ip route`.',
    });
  }

  /** What the machine already has a way to. The default route covers everything and takes nothing. */
  async #routes(): Promise<Cidr[]> {
    const { stdout } = await this.#commands.host(['ip', '-json', '-4', 'route', 'show', 'table', 'all']);
    const routes = JSON.parse(stdout === '' ? '[]' : stdout) as { dst: string }[];
    return routes.filter(({ dst }) => dst !== 'default').map(({ dst }) => parseCidr(dst));
  }

  /**
   * The one setting of the machine that is changed: without forwarding no packet passes between a sandbox and the
   * outside. It is set when the first sandbox gets a network, and left on, as others may have come to rely on it.
   */
  async #forwardPackets(): Promise<void> {
    if (this.#forwards) return;
    const setting = '/proc/sys/net/ipv4/ip_forward';
    await this.#commands.host(['sh', '-c', `read -r on < ${setting}; [ "$on" = 1 ] || echo 1 > ${setting}`]);
    this.#forwards = true;
  }

  /** Tells the gateway before any rule leads there. */
  async #doors(sandboxId: string, slot: number, policy: NetworkPolicy): Promise<NameDoors | undefined> {
    if (!isByName(policy)) {
      await this.#gateway?.dismiss(sandboxId);
      return undefined;
    }
    if (this.#gateway === undefined)
      throw new CoppiceError('unsupported', 'this network knows no names, as it has no gateway');
    const plan = this.#plan();
    const place = { address: plan.address(slot), names: formatCidr(plan.names), host: plan.gateway };
    return this.#gateway.admit(sandboxId, place, policy);
  }

  /** Makes the addresses that stand for names this machine's own. */
  async #takeNames(): Promise<void> {
    if (this.#hasNames) return;
    await this.#commands.host([
      'ip',
      'route',
      'replace',
      'local',
      formatCidr(this.#plan().names),
      'dev',
      'lo',
    ]);
    this.#hasNames = true;
  }

  async #giveNamesBack(): Promise<void> {
    const { exitCode, stderr } = await this.#commands.host(
      ['ip', 'route', 'del', 'local', formatCidr(this.#plan().names), 'dev', 'lo'],
      { accept: [1, 2] },
    );
    this.#hasNames = false;
    if (exitCode !== 0 && !/No such process/.test(stderr))
      throw new CoppiceError('internal', `the route of names could not be deleted: ${stderr.trim()}`);
  }

  /** Whatever there is of the link already, it is whole afterwards. */
  async #link(netns: string, slot: number, made: boolean): Promise<void> {
    const plan = this.#plan();
    const name = plan.linkName(slot);
    const address = plan.address(slot);
    const outside = [
      // No IPv6 address comes up by itself.
      `link set dev ${name} addrgenmode none`,
      `address replace ${plan.gateway}/32 dev ${name}`,
      `link set dev ${name} up`,
      `route replace ${address}/32 dev ${name}`,
    ];
    const inside = [
      'link set dev lo up',
      `link set dev ${innerLink} addrgenmode none`,
      `link set dev ${innerLink} up`,
      `route replace ${plan.gateway}/32 dev ${innerLink}`,
      `route replace default via ${plan.gateway} dev ${innerLink}`,
      // Last: its presence says that the link is complete.
      `address replace ${address}/32 dev ${innerLink}`,
    ];
    const batch = (items: readonly string[]) => ({ input: lines(items) });
    const argv = ['ip', '-batch', '-'] as const;
    // Both ends at once where they were made before and a driver took the addresses off.
    const renew = () =>
      allDone([this.#commands.host(argv, batch(outside)), this.#commands.inside(netns, argv, batch(inside))]);
    const make = async () => {
      const add = `link add ${name} type veth peer name ${innerLink} netns ${netns}`;
      await this.#commands.host(argv, batch([add, ...outside]));
      await this.#commands.inside(netns, argv, batch(inside));
    };
    try {
      await (made ? renew() : make());
    } catch {
      // Half of it is there, or one of that name whose namespace has gone. If it is something else, that shows now.
      await this.#deleteLink(name);
      await make().catch(async (error: unknown) => {
        await this.#deleteLink(name);
        throw error;
      });
    }
  }

  /** Whether this very namespace is linked, by this daemon or an earlier one. */
  async #hasLink(netns: string, address: string): Promise<boolean> {
    const { stdout, exitCode } = await this.#commands.inside(
      netns,
      ['ip', '-json', '-4', 'address', 'show', 'dev', innerLink, 'up'],
      { accept: [1] },
    );
    if (exitCode !== 0) return false;
    const links = JSON.parse(stdout === '' ? '[]' : stdout) as { addr_info?: { local: string }[] }[];
    return links.some((link) => link.addr_info?.some(({ local }) => local === address));
  }

  /** After a first attachment that failed: the failure that matters is the one that the caller sees. */
  async #undo(sandboxId: string, slot: number): Promise<void> {
    await Promise.allSettled([this.#detach(slot)]);
    await this.#exclusively(() => this.#book.free(sandboxId));
  }

  async #detach(slot: number): Promise<void> {
    await this.#deleteLink(this.#plan().linkName(slot));
    await this.#forgetRules(slot);
  }

  #forgetRules(slot: number): Promise<void> {
    return this.#exclusively(() => this.#commands.hostRules(this.#rules().detach(slot)));
  }

  async #deleteLink(name: string): Promise<void> {
    const { exitCode, stderr } = await this.#commands.host(['ip', 'link', 'delete', 'dev', name], {
      accept: [1, 2],
    });
    // Gone already: with its namespace, or never made.
    if (exitCode === 0 || /Cannot find device|No such device/.test(stderr)) return;
    throw new CoppiceError('internal', `the link ${name} could not be deleted: ${stderr.trim()}`);
  }

  async #deleteTable(): Promise<void> {
    const table = `inet ${tableName(this.#homeKey)}`;
    await this.#exclusively(() =>
      this.#commands.hostRules(lines([`add table ${table}`, `delete table ${table}`])),
    );
  }

  async #deleteNamespace(name: string): Promise<void> {
    if (!(await this.#namespaces()).includes(name)) return;
    await this.#commands.host(['ip', 'netns', 'delete', name]);
  }

  async #namespaces(): Promise<string[]> {
    return readdir(namespaceDirectory).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return [];
      throw error;
    });
  }

  async #links(): Promise<string[]> {
    const { stdout } = await this.#commands.host(['ip', '-json', 'link', 'show', 'type', 'veth']);
    const links = JSON.parse(stdout === '' ? '[]' : stdout) as { ifname?: string }[];
    return links.flatMap(({ ifname }) => (ifname?.startsWith(linkPrefix(this.#homeKey)) ? [ifname] : []));
  }

  async #chains(): Promise<number[]> {
    const { stdout, exitCode } = await this.#commands.host(
      ['nft', '--json', 'list', 'table', 'inet', tableName(this.#homeKey)],
      { accept: [1] },
    );
    if (exitCode !== 0) return [];
    const { nftables } = JSON.parse(stdout) as { nftables: { chain?: { name: string } }[] };
    return nftables.flatMap(({ chain }) => (chain === undefined ? [] : (slotOfChain(chain.name) ?? [])));
  }

  #plan(): AddressPlan {
    const range = this.#book.range;
    if (range === undefined) throw new Error('no range chosen');
    return new AddressPlan(this.#homeKey, range);
  }

  #rules(): HostRules {
    return new HostRules(this.#homeKey, this.#plan());
  }

  #namespaceName(sandboxId: string): string {
    return `${namespacePrefix(this.#homeKey)}${sandboxId}`;
  }

  #exclusively<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#queue.then(work);
    // A failure is its caller's to see; the next in the queue runs all the same.
    this.#queue = result.catch(() => {});
    return result;
  }
}

/** Like Promise.all, but when it fails nothing of it runs on. */
async function allDone(work: readonly Promise<unknown>[]): Promise<void> {
  for (const result of await Promise.allSettled(work)) if (result.status === 'rejected') throw result.reason;
}
