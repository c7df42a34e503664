import { setTimeout as delay } from 'node:timers/promises';

import * as grpc from '@grpc/grpc-js';

import { onAbort } from './abort';
import { bytesOf, checkCount, checkIDType, checkNumber, checkSignal, idBytes, invalid, type ID } from './arguments';
import { choose, RetryBudget } from './balance';
import { batches } from './batches';
import { DocstoreError, errorOf } from './errors';
import { Failure, Server, type Unary } from './server';
import type { BatchGetRequest } from './generated/docstore/v1/BatchGetRequest';
import type { BatchGetResponse__Output } from './generated/docstore/v1/BatchGetResponse';
import type { CollectionStats__Output } from './generated/docstore/v1/CollectionStats';
import type { GetRequest } from './generated/docstore/v1/GetRequest';
import type { GetResponse__Output } from './generated/docstore/v1/GetResponse';
import type { ScanRequest } from './generated/docstore/v1/ScanRequest';
import type { ScanResponse__Output } from './generated/docstore/v1/ScanResponse';
import type { StatsRequest } from './generated/docstore/v1/StatsRequest';
import type { StatsResponse__Output } from './generated/docstore/v1/StatsResponse';

/** maxBatchIDs is the limit of the server. */
const maxBatchIDs = 16_384;
/** maxPageIDs is the limit of the server. */
const maxPageIDs = 4_096;
/** retryDelayMs is the first delay when all servers have been tried; it doubles. */
const retryDelayMs = 25;

export interface ClientOptions {
  /** Addresses, HOST:PORT, of docserviced --grpc. Each serves the whole collection. */
  servers: string[];
  collection: string;
  /** PEM of the authority of the servers' certificates. Without it the connection is plain text. */
  ca?: Buffer;
  /** PEM of the client's own certificate and key. */
  certificate?: { chain: Buffer; key: Buffer };
  /** Token, or a function that returns the current one. It needs ca. */
  token?: string | (() => string);
  /** Time of a method, retries included. The default is 5 s. */
  timeoutMs?: number;
  /**
   * Time of one attempt; then another server is asked. It starts when the call is sent: up to 99
   * calls to a server are in flight, others wait for at most timeoutMs. The default is 1 s.
   */
  attemptMs?: number;
  /** Further attempts of a call. The default is 3. */
  maxRetries?: number;
  /** Ids of one request of getMany, up to 16,384. The default is 500. */
  batchIDs?: number;
  /** Concurrent requests of one getMany. The default is 4. */
  concurrency?: number;
}

/** CallOptions apply to one call of a method. */
export interface CallOptions {
  signal?: AbortSignal;
  timeoutMs?: number;
  /** Overloaded servers refuse batch first. The default is interactive. */
  priority?: 'interactive' | 'batch';
}

/**
 * Answer is the result for one id. If document is null and there is no error, the document
 * does not exist.
 */
export interface Answer {
  id: ID;
  document: Buffer | null;
  error?: DocstoreError;
}

/** Entry is a document of a scan. */
export interface Entry {
  id: Buffer;
  document: Buffer | null;
  error?: DocstoreError;
}

export interface ScanOptions extends CallOptions {
  prefix?: ID;
  /** Only ids after this one. */
  after?: ID;
  idsOnly?: boolean;
  /** Ids of a page, up to 4,096. The default is 1,000. */
  pageIDs?: number;
}

/** Waiter is a call that waits for a server with less than maxInFlight calls. */
interface Waiter {
  readonly tried: ReadonlySet<Server>;
  readonly wake: () => void;
  server?: Server;
}

/** Limit is the end of a method. */
interface Limit {
  deadline: number;
  signal: AbortSignal | undefined;
  metadata: grpc.Metadata;
}

/**
 * Client fetches the documents of one collection from several servers. It sends a call to a
 * healthy server with few calls in flight. A call that a server refuses, cannot answer or does
 * not answer in time is sent to another one: all methods only read. Retries have a budget, a
 * fifth of the calls and ten a second. All methods reject with a DocstoreError.
 */
export class Client {
  private readonly options: Required<Pick<ClientOptions, 'timeoutMs' | 'attemptMs' | 'maxRetries' | 'batchIDs' | 'concurrency'>>;
  private readonly collection: string;
  private readonly servers: Server[];
  private readonly budget = new RetryBudget(Date.now());
  private readonly waiting = new Set<() => void>(); // for a change of health
  private readonly queue = new Set<Waiter>(); // in the order of the calls
  private closed = false;

  constructor(options: ClientOptions) {
    const { servers, collection, timeoutMs = 5_000, attemptMs = 1_000, maxRetries = 3, batchIDs = 500, concurrency = 4 } = options ?? {};
    this.options = { timeoutMs, attemptMs, maxRetries, batchIDs, concurrency };
    checkNumber('timeoutMs', timeoutMs, 1);
    checkNumber('attemptMs', attemptMs, 1);
    checkCount('maxRetries', maxRetries, 0);
    checkCount('batchIDs', batchIDs, 1, maxBatchIDs);
    checkCount('concurrency', concurrency, 1);
    if (typeof collection !== 'string' || collection === '') throw invalid('collection is missing; give its name');
    if (!Array.isArray(servers)) throw invalid('servers is missing; give an array of HOST:PORT');
    if (servers.length === 0) throw invalid('servers is empty; give at least one HOST:PORT');
    if (!servers.every((address) => typeof address === 'string' && address !== '')) throw invalid('servers has an address that is empty or not a string');
    if (new Set(servers).size < servers.length) throw invalid('servers has an address twice');
    this.collection = collection;
    const credentials = credentialsOf(options);
    this.servers = servers.map((address) => new Server(address, credentials, () => this.changed()));
  }

  /** get returns a document, or null if it does not exist. */
  async get(id: ID, options: CallOptions = {}): Promise<Buffer | null> {
    const request: GetRequest = { collection: this.collection, id: idBytes(id) };
    const { response } = await this.call<GetRequest, GetResponse__Output>('Get', request, this.limit(options));
    return documentOf(response.status, response.document);
  }

  /**
   * getMany returns an answer for each id, in order. It splits the ids into requests. Ids that
   * a server cannot read are requested from another one. The answer for an id that is empty, too
   * long or half a surrogate pair has an error; other ids are requested.
   */
  async getMany(ids: readonly ID[], options: CallOptions = {}): Promise<Answer[]> {
    const limit = this.limit(options);
    if (!Array.isArray(ids)) throw invalid('ids is not an array');
    const answers: Answer[] = Array.from(ids as readonly ID[], (id, i) => {
      checkIDType(id, `ids[${i}]`);
      return { id, document: null };
    });
    const encoded = answers.map((answer, i) => {
      try {
        return idBytes(answer.id, `ids[${i}]`);
      } catch (error) {
        answer.error = error as DocstoreError;
        return Buffer.alloc(0);
      }
    });
    const requests = [...batches(encoded, this.options.batchIDs)];
    const rest = requests.values();
    const work = async () => {
      for (const indexes of rest) await this.fetch(encoded, indexes, answers, limit);
    };
    await Promise.all(Array.from({ length: Math.min(this.options.concurrency, requests.length) }, work));
    return answers;
  }

  /** fetch answers the ids at the indexes. */
  private async fetch(ids: readonly Buffer[], indexes: readonly number[], answers: Answer[], limit: Limit): Promise<void> {
    let avoid = new Set<Server>(); // those that could not read the documents
    for (let attempt = 0; ; attempt++) {
      const unavailable: number[] = [];
      const asked = new Set<Server>();
      for (let rest = indexes; rest.length > 0; ) {
        rest = await this.fetchSome(ids, rest, answers, limit, avoid, asked, unavailable);
      }
      const again = attempt < this.options.maxRetries && this.servers.length > 1 && Date.now() < limit.deadline;
      if (unavailable.length === 0 || !again || !this.budget.take(Date.now())) return;
      [indexes, avoid] = [unavailable, asked];
    }
  }

  /**
   * fetchSome makes one request and returns the indexes without an answer. It adds the server,
   * and the indexes of unavailable documents, to the lists.
   */
  private async fetchSome(
    ids: readonly Buffer[],
    indexes: readonly number[],
    answers: Answer[],
    limit: Limit,
    avoid: ReadonlySet<Server>,
    asked: Set<Server>,
    unavailable: number[],
  ): Promise<readonly number[]> {
    const request: BatchGetRequest = { collection: this.collection, ids: indexes.map((i) => ids[i]!) };
    let got: BatchGetResponse__Output;
    try {
      const { response, server } = await this.call<BatchGetRequest, BatchGetResponse__Output>('BatchGet', request, limit, avoid);
      got = response;
      asked.add(server);
    } catch (error) {
      if (!(error instanceof DocstoreError) || error.code !== 'unavailable') throw error;
      for (const i of indexes) answers[i]!.error = error; // no server has any of them
      return [];
    }
    const list = got.answers ?? [];
    if (list.length === 0 || list.length + (got.leftOut ?? 0) !== indexes.length) {
      throw new DocstoreError('internal', `the server sent ${list.length} answers for ${indexes.length} ids`);
    }
    list.forEach((one, at) => {
      const answer = answers[indexes[at]!]!;
      delete answer.error;
      try {
        answer.document = documentOf(one.status, one.document);
      } catch (error) {
        answer.error = error as DocstoreError;
        if (answer.error.code === 'unavailable') unavailable.push(indexes[at]!);
      }
    });
    return indexes.slice(list.length);
  }

  /**
   * scan returns ids in byte order with their documents, page by page. Each page may come from
   * another server; the timeout is that of a page.
   */
  async *scan(options: ScanOptions = {}): AsyncGenerator<Entry, void, void> {
    const { pageIDs = 0, idsOnly = false } = options ?? {};
    const prefix = bytesOf(options?.prefix ?? '', 'prefix');
    let after = bytesOf(options?.after ?? '', 'after');
    checkCount('pageIDs', pageIDs, 0, maxPageIDs);
    do {
      const request: ScanRequest = {
        collection: this.collection,
        prefix,
        after,
        limit: pageIDs,
        idsOnly,
      };
      const { response } = await this.call<ScanRequest, ScanResponse__Output>('Scan', request, this.limit(options));
      for (const one of response.entries ?? []) {
        const entry: Entry = { id: one.id ?? Buffer.alloc(0), document: null };
        try {
          if (!idsOnly) entry.document = documentOf(one.status, one.document);
        } catch (error) {
          entry.error = error as DocstoreError;
        }
        yield entry;
      }
      after = response.next ?? Buffer.alloc(0);
    } while (after.length > 0);
  }

  /** stats describes the collection, as one server sees it. */
  async stats(options: CallOptions = {}): Promise<CollectionStats__Output> {
    const request: StatsRequest = { collection: this.collection };
    const { response } = await this.call<StatsRequest, StatsResponse__Output>('Stats', request, this.limit(options));
    const stats = response.collections?.[0];
    if (stats === undefined) throw new DocstoreError('internal', 'the server sent no statistics');
    return stats;
  }

  /** health returns the health of each server as it reports it; undefined: unknown. */
  health(): Record<string, boolean | undefined> {
    return Object.fromEntries(this.servers.map((s) => [s.address, s.serving]));
  }

  /** waitReady waits until a server reports that it serves. */
  async waitReady(options: CallOptions = {}): Promise<void> {
    const limit = this.limit(options);
    while (!this.servers.some((s) => s.serving === true)) {
      this.check(limit);
      const { ended, wake } = wait(limit);
      this.waiting.add(wake);
      await ended;
      this.waiting.delete(wake);
    }
  }

  /** close ends the connections. Calls in progress and later calls fail. */
  close(): void {
    this.closed = true;
    for (const s of this.servers) s.close();
    for (const waiter of this.queue) waiter.wake();
    this.changed();
  }

  /** changed is called when the health of a server has changed. */
  private changed(): void {
    for (const wake of this.waiting) wake();
    this.dispatch();
  }

  /**
   * acquire waits for a server with less than maxInFlight calls and counts the call. The caller
   * releases the server.
   */
  private async acquire(tried: ReadonlySet<Server>, limit: Limit): Promise<Server> {
    for (;;) {
      this.check(limit);
      const { ended, wake } = wait(limit);
      const waiter: Waiter = { tried, wake };
      this.queue.add(waiter);
      this.dispatch();
      await ended;
      this.queue.delete(waiter);
      if (waiter.server !== undefined) return waiter.server;
    }
  }

  private release(server: Server): void {
    server.inFlight--;
    this.dispatch();
  }

  /** dispatch gives servers to the first waiting calls. */
  private dispatch(): void {
    for (const waiter of this.queue) {
      const server = choose(this.servers, waiter.tried, Date.now(), Math.random);
      if (server === undefined) {
        if (waiter.tried.size === 0) return; // the best servers are busy: later calls wait too
        continue;
      }
      server.inFlight++;
      waiter.server = server;
      this.queue.delete(waiter);
      waiter.wake();
    }
  }

  private limit(options: CallOptions): Limit {
    const { timeoutMs = this.options.timeoutMs, signal, priority = 'interactive' } = options ?? {};
    checkNumber('timeoutMs', timeoutMs, 0);
    checkSignal(signal);
    if (priority !== 'interactive' && priority !== 'batch') throw invalid(`priority is ${String(priority)}: want interactive or batch`);
    const metadata = new grpc.Metadata();
    if (priority === 'batch') metadata.set('priority', 'u=7'); // RFC 9218
    return { deadline: Date.now() + timeoutMs, signal, metadata };
  }

  /** check rejects a call that has ended. */
  private check(limit: Limit): void {
    if (this.closed) throw new DocstoreError('aborted', 'the client is closed');
    if (limit.signal?.aborted) throw new DocstoreError('aborted', 'the call was aborted', limit.signal.reason);
    if (Date.now() >= limit.deadline) throw new DocstoreError('deadline_exceeded', 'the time of the call has ended');
  }

  /** call sends a request to the servers, not to those in avoid if there are others. */
  private async call<Request, Response>(
    method: Unary,
    request: Request,
    limit: Limit,
    avoid: ReadonlySet<Server> = new Set(),
  ): Promise<{ response: Response; server: Server }> {
    const tried = new Set<Server>(avoid);
    this.budget.call();
    for (let attempt = 0; ; attempt++) {
      const server = await this.acquire(tried, limit);
      try {
        this.check(limit);
        const deadline = Math.min(limit.deadline, Date.now() + this.options.attemptMs);
        return { response: await server.call<Request, Response>(method, request, limit.metadata, deadline, limit.signal), server };
      } catch (failure) {
        if (!(failure instanceof Failure)) throw failure;
        this.check(limit);
        const again = retried.has(failure.error.code) && attempt < this.options.maxRetries && this.budget.take(Date.now());
        if (!again) throw errorOf(failure.error, server.address, failure.answered);
      } finally {
        this.release(server);
      }
      tried.add(server);
      if (tried.size >= this.servers.length) {
        tried.clear();
        const wait = retryDelayMs * 2 ** attempt * (0.5 + Math.random());
        await delay(Math.min(wait, Math.max(0, limit.deadline - Date.now())));
      }
    }
  }
}

/** retried are the errors of calls that another server may answer. */
const retried = new Set<grpc.status>([grpc.status.UNAVAILABLE, grpc.status.RESOURCE_EXHAUSTED, grpc.status.DEADLINE_EXCEEDED]);

/** documentOf returns the document of an answer, or null, or throws. */
function documentOf(status: string | undefined, document: Buffer | undefined): Buffer | null {
  switch (status) {
    case 'STATUS_FOUND':
      return document ?? Buffer.alloc(0);
    case 'STATUS_NOT_FOUND':
      return null;
    case 'STATUS_UNAVAILABLE':
      throw new DocstoreError('unavailable', 'the servers that were asked cannot read the document now');
    case 'STATUS_MOVED':
      throw new DocstoreError('moved', 'the server does not have the shard of the id');
  }
  throw new DocstoreError('internal', 'the server failed to read the document; see its log');
}

/** wait returns a promise that resolves at the deadline, at an abort or by wake. */
function wait(limit: Limit): { ended: Promise<void>; wake: () => void } {
  let wake = () => {};
  const ended = new Promise<void>((resolve) => {
    const timer = setTimeout(() => wake(), Math.max(0, limit.deadline - Date.now()));
    const forget = onAbort(limit.signal, () => wake());
    wake = () => {
      clearTimeout(timer);
      forget();
      resolve();
    };
  });
  return { ended, wake };
}

/** credentialsOf returns plain text, or TLS with an optional certificate and token. */
function credentialsOf(options: ClientOptions): grpc.ChannelCredentials {
  const { ca, certificate, token } = options;
  if (ca === undefined) {
    if (token !== undefined || certificate !== undefined) throw invalid('a token or certificate needs ca: it is not sent in plain text');
    return grpc.credentials.createInsecure();
  }
  let tls: grpc.ChannelCredentials;
  try {
    tls = grpc.credentials.createSsl(ca, certificate?.key ?? null, certificate?.chain ?? null);
  } catch (error) {
    throw new DocstoreError('invalid_argument', `ca or certificate: ${(error as Error).message}`, error);
  }
  if (token === undefined) return tls;
  if (typeof token !== 'function') bearer(token); // refuses it now
  const generator = grpc.credentials.createFromMetadataGenerator((_, done) => {
    try {
      done(null, bearer(typeof token === 'function' ? token() : token));
    } catch (error) {
      done(Object.assign(new Error(`token: ${(error as Error).message}`), { code: grpc.status.UNAUTHENTICATED }));
    }
  });
  return grpc.credentials.combineChannelCredentials(tls, generator);
}

/** bearer returns the metadata of a token. */
function bearer(token: unknown): grpc.Metadata {
  if (typeof token !== 'string' || !/^[\x21-\x7e]+$/.test(token)) throw invalid('the token is not a string of visible ASCII characters');
  const metadata = new grpc.Metadata();
  metadata.set('authorization', `Bearer ${token}`);
  return metadata;
}
