import * as path from 'node:path';

import * as grpc from '@grpc/grpc-js';
import * as protoLoader from '@grpc/proto-loader';

import type { ProtoGrpcType as DocumentsProto } from './generated/docservice';
import type { ProtoGrpcType as HealthProto } from './generated/health';
import type { DocumentsClient } from './generated/docstore/v1/Documents';
import type { HealthClient } from './generated/grpc/health/v1/Health';

// The options of `npm run generate`: the types describe messages that are loaded with them.
const definition = protoLoader.loadSync(['docservice.proto', 'health.proto'], {
  includeDirs: [path.join(__dirname, '../../proto')],
  enums: String,
  longs: Number,
});
const loaded = grpc.loadPackageDefinition(definition) as unknown as DocumentsProto & HealthProto;

/** serviceOfDocuments and serviceOfHealth are for servers of tests. */
export const serviceOfDocuments = loaded.docstore.v1.Documents.service;
export const serviceOfHealth = loaded.grpc.health.v1.Health.service;

/** maxResponseBytes is the limit of a response of the server; that of gRPC is 4 MiB. */
const maxResponseBytes = 33 * 1024 * 1024;

/** Stubs are the services of one server, on one connection. */
export interface Stubs {
  documents: DocumentsClient;
  health: HealthClient;
}

/** connect makes the stubs of a server. It connects with the first call. */
export function connect(address: string, credentials: grpc.ChannelCredentials): Stubs {
  const channel = new grpc.Channel(address, credentials, {
    'grpc.max_receive_message_length': maxResponseBytes,
    'grpc.use_local_subchannel_pool': 1, // other clients of the process would use streams of the connection
    'grpc.initial_reconnect_backoff_ms': 100,
    'grpc.max_reconnect_backoff_ms': 5_000,
    'grpc.keepalive_time_ms': 30_000, // the server allows 10 s
    'grpc.keepalive_timeout_ms': 5_000,
  });
  const options = { channelOverride: channel };
  return {
    documents: new loaded.docstore.v1.Documents(address, credentials, options),
    health: new loaded.grpc.health.v1.Health(address, credentials, options),
  };
}
