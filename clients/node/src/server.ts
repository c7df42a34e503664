import * as grpc from '@grpc/grpc-js';

import { onAbort } from './abort';
import { pause, type Candidate } from './balance';
import { connect, type Stubs } from './proto';
import type { HealthCheckResponse__Output } from './generated/grpc/health/v1/HealthCheckResponse';

/** Unary are the names of the methods of Documents. */
export type Unary = 'Get' | 'BatchGet' | 'Scan' | 'Stats';

// Delays before the health is watched again: after the end of the stream, and after a refusal.
const watchAgainMs = 200;
const refusedMs = 10_000;

const service = 'docstore.v1.Documents';

/** Failure is the error of a call. answered: the connection is up, so the server sent it. */
export class Failure {
  constructor(
    readonly error: grpc.ServiceError,
    readonly answered: boolean,
  ) {}
}

/** Server is a connection to one server. It watches the health of the server until close. */
export class Server implements Candidate {
  inFlight = 0; // counted by the client
  serving: boolean | undefined = undefined;
  pausedUntil = 0;

  private failures = 0; // in a row
  private closed = false;
  private readonly stubs: Stubs;
  private stream: grpc.ClientReadableStream<HealthCheckResponse__Output> | undefined;
  private timer: NodeJS.Timeout | undefined;

  constructor(
    readonly address: string,
    credentials: grpc.ChannelCredentials,
    private readonly changed: () => void,
  ) {
    this.stubs = connect(address, credentials);
    this.watch();
  }

  /** call makes one attempt. It rejects with a Failure. */
  call<Request, Response>(method: Unary, request: Request, metadata: grpc.Metadata, deadline: number, signal?: AbortSignal): Promise<Response> {
    return new Promise((resolve, reject) => {
      const send = this.stubs.documents[method].bind(this.stubs.documents) as unknown as (
        request: Request,
        metadata: grpc.Metadata,
        options: grpc.CallOptions,
        done: (error: grpc.ServiceError | null, response?: Response) => void,
      ) => grpc.ClientUnaryCall;
      const call = send(request, metadata, { deadline }, (error, response) => {
        forget();
        if (error) reject(this.note(error));
        else {
          this.failures = 0;
          this.pausedUntil = 0;
          resolve(response as Response);
        }
      });
      const abort = () => call.cancel();
      const forget = onAbort(signal, abort);
      if (signal?.aborted) abort();
    });
  }

  /** note pauses a server that does not answer or is overloaded. */
  private note(error: grpc.ServiceError): Failure {
    const answered = this.stubs.documents.getChannel().getConnectivityState(false) === grpc.connectivityState.READY;
    const overloaded = error.code === grpc.status.RESOURCE_EXHAUSTED || error.code === grpc.status.DEADLINE_EXCEEDED;
    if (overloaded || (error.code === grpc.status.UNAVAILABLE && !answered)) {
      this.pausedUntil = Date.now() + pause(++this.failures, Math.random);
    }
    return new Failure(error, answered);
  }

  private watch(): void {
    const metadata = new grpc.Metadata({ waitForReady: true });
    this.stream = this.stubs.health.Watch({ service }, metadata);
    this.stream.on('data', (response: HealthCheckResponse__Output) => this.set(response.status === 'SERVING'));
    this.stream.on('error', () => {}); // its status follows
    this.stream.on('status', (status: grpc.StatusObject) => this.watchAgain(status.code)); // also OK, as of a proxy that stops
  }

  private watchAgain(code: grpc.status): void {
    this.stream = undefined;
    if (this.closed) return;
    this.set(undefined);
    if (code === grpc.status.UNIMPLEMENTED) return; // its health is never known
    const ended = code === grpc.status.OK || code === grpc.status.UNAVAILABLE;
    this.timer = setTimeout(() => this.watch(), ended ? watchAgainMs : refusedMs);
  }

  private set(serving: boolean | undefined): void {
    if (serving === true) this.pausedUntil = 0;
    this.serving = serving;
    this.changed();
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.stream?.cancel();
    this.stubs.documents.close();
  }
}
