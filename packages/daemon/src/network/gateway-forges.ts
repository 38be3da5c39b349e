import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ForgeAnswer } from '@coppice/forge';
import type { NftNetwork } from '@coppice/runtime';
import { z } from 'zod';
import type { GatewayProcess } from './gateway-process.ts';

/** Forges elsewhere, spoken to through the gateway, which alone has their tokens. */
export class GatewayForges {
  readonly #gateway: GatewayProcess;
  readonly #network: NftNetwork;

  constructor(gateway: GatewayProcess, network: NftNetwork) {
    this.#gateway = gateway;
    this.#network = network;
  }

  async setForge(id: string, login: object): Promise<void> {
    await this.#ask('PUT', `/forges/${id}`, login);
  }

  async removeForge(id: string): Promise<void> {
    if (this.#gateway.isUsed) await this.#ask('DELETE', `/forges/${id}`);
  }

  async listForges(): Promise<string[]> {
    if (!this.#gateway.isUsed) return [];
    return z.object({ items: z.array(z.string()) }).parse(await this.#ask('GET', '/forges')).items;
  }

  callForge(id: string, call: object, signal?: AbortSignal): Promise<ForgeAnswer> {
    return this.#ask('POST', `/forges/${id}/call`, call, signal);
  }

  /** A request of git; it may push to the branch, where there is one. */
  async relayGit(
    id: string,
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
    branch: string | undefined,
  ): Promise<void> {
    const more: Record<string, string> = branch === undefined ? {} : { 'x-coppice-branch': branch };
    const place = await this.#network.gatewayPlace();
    await this.#gateway.relay(place, `/forges/${id}/git${path}`, request, response, more);
  }

  async #ask<T>(method: string, path: string, body?: object, signal?: AbortSignal): Promise<T> {
    return this.#gateway.ask<T>(await this.#network.gatewayPlace(), method, path, body, signal);
  }
}
